// Transactions of stock sarama against a broker: `transactions BOOTSTRAP PREFIX`; test_client_transactions.py has the outcomes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 2
	end        = "end"
)

type run struct {
	bootstrap, prefix string
	client            sarama.Client
	admin             sarama.ClusterAdmin
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func say(name string, outcome any) {
	text, err := json.Marshal(outcome)
	check(err)
	fmt.Printf("%s: %s\n", name, text)
}

// refusal is the number of the broker's error in an error of the client, or the text.
func refusal(err error) any {
	var refused sarama.KError
	if errors.As(err, &refused) {
		return int16(refused)
	}
	return fmt.Sprint(err)
}

func config() *sarama.Config {
	options := sarama.NewConfig()
	options.Version = sarama.V2_8_0_0
	options.Consumer.Offsets.Initial = sarama.OffsetOldest
	options.Consumer.Offsets.AutoCommit.Enable = false
	options.Consumer.MaxWaitTime = 100 * time.Millisecond
	return options
}

func (r run) topic(name string) string {
	topic := r.prefix + "-" + name
	check(r.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
	return topic
}

// producer has its producer id when this returns.
func (r run) producer(id string, timeout time.Duration) sarama.SyncProducer {
	options := config()
	options.Net.MaxOpenRequests = 1
	options.Producer.Idempotent = true
	options.Producer.RequiredAcks = sarama.WaitForAll
	options.Producer.Return.Successes = true
	options.Producer.Partitioner = sarama.NewManualPartitioner
	options.Producer.Transaction.ID = r.prefix + "-" + id
	options.Producer.Transaction.Timeout = timeout
	producer, err := sarama.NewSyncProducer([]string{r.bootstrap}, options)
	check(err)
	return producer
}

func send(producer sarama.SyncProducer, topic string, partition int32, value string) error {
	_, _, err := producer.SendMessage(
		&sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)},
	)
	return err
}

// values are those of each partition, up to the end that both levels see.
func (r run) values(topic string, level sarama.IsolationLevel) [partitions][]string {
	options := config()
	options.Consumer.IsolationLevel = level
	consumer, err := sarama.NewConsumer([]string{r.bootstrap}, options)
	check(err)
	var found [partitions][]string
	for partition := range found {
		reader, err := consumer.ConsumePartition(topic, int32(partition), sarama.OffsetOldest)
		check(err)
		for message := range reader.Messages() {
			found[partition] = append(found[partition], string(message.Value))
			if string(message.Value) == end {
				break
			}
		}
		check(reader.Close())
	}
	check(consumer.Close())
	return found
}

func (r run) sayValues(topic string) {
	say("committed", r.values(topic, sarama.ReadCommitted))
	say("all", r.values(topic, sarama.ReadUncommitted))
}

func (r run) commitAndAbort() string {
	topic := r.topic("both")
	producer := r.producer("both", time.Minute)
	for number := 0; number < 5; number++ {
		check(producer.BeginTxn())
		for partition := int32(0); partition < partitions; partition++ {
			value := end
			if number < 4 {
				value = strconv.Itoa(number) + "-" + strconv.Itoa(int(partition))
			}
			check(send(producer, topic, partition, value))
		}
		if number%2 == 0 {
			check(producer.CommitTxn())
		} else {
			check(producer.AbortTxn())
		}
	}
	check(producer.Close())
	r.sayValues(topic)
	return topic
}

// untilMarked waits until each partition has one record and the marker of its abort.
func (r run) untilMarked(topic string) {
	for marked := 0; marked < partitions; time.Sleep(20 * time.Millisecond) {
		marked = 0
		for partition := int32(0); partition < partitions; partition++ {
			offset, err := r.client.GetOffset(topic, partition, sarama.OffsetNewest)
			check(err)
			if offset == 2 {
				marked++
			}
		}
	}
}

// refused has two producers whose transactions somebody else aborts: one then commits, the other sends.
func (r run) refused(name string, timeout time.Duration, isFenced bool) {
	topic := r.topic(name)
	ids := []string{name + "-commit", name + "-send"}
	var first, next []sarama.SyncProducer
	for partition, id := range ids {
		producer := r.producer(id, timeout)
		check(producer.BeginTxn())
		check(send(producer, topic, int32(partition), "lost"))
		first = append(first, producer)
	}
	succeed := func() {
		for _, id := range ids {
			next = append(next, r.producer(id, time.Minute))
		}
	}
	if isFenced {
		succeed()
	}
	r.untilMarked(topic)
	say("refused commit", refusal(first[0].CommitTxn()))
	say("refused send", refusal(send(first[1], topic, 1, "late")))
	if !isFenced {
		succeed()
	}
	for partition, producer := range next {
		check(producer.BeginTxn())
		check(send(producer, topic, int32(partition), end))
		check(producer.CommitTxn())
		check(producer.Close())
	}
	for _, producer := range first {
		_ = producer.Close() // a fenced one cannot end its transaction
	}
	r.sayValues(topic)
}

func (r run) offsets(group string) []string {
	offsets, err := r.admin.ListConsumerGroupOffsets(group, nil)
	check(err)
	found := []string{}
	for _, blocks := range offsets.Blocks {
		for partition, block := range blocks {
			found = append(found, fmt.Sprintf("%d=%d", partition, block.Offset))
		}
	}
	sort.Strings(found)
	return found
}

// copier is a member of a group that reads both partitions to their ends, and then writes what it has read.
type copier struct {
	run
	target, group string
	messages      chan *sarama.ConsumerMessage
	done          chan struct{}
}

func (c *copier) Setup(session sarama.ConsumerGroupSession) error {
	go c.copy(sarama.NewConsumerGroupMetadataFromSession(session, c.group, nil))
	return nil
}

func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		c.messages <- message
	}
	return nil
}

func (c *copier) copy(member *sarama.ConsumerGroupMetadata) {
	var read []*sarama.ConsumerMessage
	for ended := 0; ended < partitions; {
		message := <-c.messages
		read = append(read, message)
		if string(message.Value) == end {
			ended++
		}
	}
	producer := c.producer("copier", time.Minute)
	for _, mustCommit := range []bool{false, true} {
		check(producer.BeginTxn())
		for _, message := range read {
			check(send(producer, c.target, message.Partition, string(message.Value)))
			check(producer.AddMessageToTxnWithGroupMetadata(message, member, nil))
		}
		if mustCommit {
			check(producer.CommitTxn())
		} else {
			check(producer.AbortTxn())
			say("offsets after an abort", c.offsets(c.group))
		}
	}
	check(producer.Close())
	close(c.done)
}

// copy reads the committed records of a topic, and writes them and the offsets; the first attempt aborts.
func (r run) copy(source string) {
	options := config()
	options.Consumer.IsolationLevel = sarama.ReadCommitted
	c := &copier{r, r.topic("copy"), r.prefix + "-copier", make(chan *sarama.ConsumerMessage), make(chan struct{})}
	group, err := sarama.NewConsumerGroup([]string{r.bootstrap}, c.group, options)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	consumed := make(chan error)
	go func() { consumed <- group.Consume(ctx, []string{source}, c) }()
	<-c.done
	cancel()
	check(<-consumed)
	check(group.Close())
	// The markers of a commit come after its answer.
	for len(r.offsets(c.group)) < partitions {
		time.Sleep(20 * time.Millisecond)
	}
	say("offsets", r.offsets(c.group))
	say("copy", r.values(c.target, sarama.ReadCommitted))
}

func main() {
	client, err := sarama.NewClient(os.Args[1:2], config())
	check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	r := run{os.Args[1], os.Args[2], client, admin}
	source := r.commitAndAbort()
	r.refused("fence", time.Minute, true)
	r.refused("time-out", 300*time.Millisecond, false)
	r.copy(source)
}
