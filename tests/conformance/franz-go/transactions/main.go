// Transactions of stock franz-go against a broker: `transactions BOOTSTRAP PREFIX`; test_client_transactions.py has the outcomes.
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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 2
	end        = "end"
)

type run struct {
	ctx               context.Context
	bootstrap, prefix string
	client            *kgo.Client
	admin             *kadm.Client
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

// refusal is the name of the broker's error in an error of the client.
func refusal(err error) string {
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return refused.Message
	}
	return fmt.Sprint(err)
}

func (r run) topic(name string) string {
	topic := r.prefix + "-" + name
	created, err := r.admin.CreateTopics(r.ctx, partitions, 1, nil, topic)
	check(err)
	check(created.Error())
	return topic
}

func record(topic string, partition int32, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
}

func (r run) options(id string, timeout time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(r.bootstrap), kgo.TransactionalID(r.prefix + "-" + id), kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

// producer has its producer id when this returns.
func (r run) producer(id string, timeout time.Duration) *kgo.Client {
	client, err := kgo.NewClient(r.options(id, timeout)...)
	check(err)
	_, _, err = client.ProducerID(r.ctx)
	check(err)
	return client
}

func (r run) commit(client *kgo.Client, records ...*kgo.Record) {
	check(client.BeginTransaction())
	check(client.ProduceSync(r.ctx, records...).FirstErr())
	check(client.EndTransaction(r.ctx, kgo.TryCommit))
}

// values are those of each partition, up to the end that both levels see.
func (r run) values(topic string, level kgo.IsolationLevel) [partitions][]string {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(r.bootstrap), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	check(err)
	defer client.Close()
	var found [partitions][]string
	for ended := 0; ended < partitions; {
		fetches := client.PollFetches(r.ctx)
		check(fetches.Err())
		fetches.EachRecord(func(each *kgo.Record) {
			found[each.Partition] = append(found[each.Partition], string(each.Value))
			if string(each.Value) == end {
				ended++
			}
		})
	}
	return found
}

func (r run) sayValues(topic string) {
	say("committed", r.values(topic, kgo.ReadCommitted()))
	say("all", r.values(topic, kgo.ReadUncommitted()))
}

func (r run) commitAndAbort() string {
	topic := r.topic("both")
	client := r.producer("both", time.Minute)
	defer client.Close()
	for number := 0; number < 4; number++ {
		check(client.BeginTransaction())
		for partition := int32(0); partition < partitions; partition++ {
			value := strconv.Itoa(number) + "-" + strconv.Itoa(int(partition))
			check(client.ProduceSync(r.ctx, record(topic, partition, value)).FirstErr())
		}
		check(client.EndTransaction(r.ctx, kgo.TransactionEndTry(number%2 == 0)))
	}
	r.commit(client, record(topic, 0, end), record(topic, 1, end))
	r.sayValues(topic)
	return topic
}

// untilMarked waits until each partition has one record and the marker of its abort.
func (r run) untilMarked(topic string) {
	for {
		ends, err := r.admin.ListEndOffsets(r.ctx, topic)
		check(err)
		check(ends.Error())
		marked := 0
		ends.Each(func(each kadm.ListedOffset) {
			if each.Offset == 2 {
				marked++
			}
		})
		if marked == partitions {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// refused has two producers whose transactions somebody else aborts: one then commits, the other sends.
func (r run) refused(name string, timeout time.Duration, isFenced bool) {
	topic := r.topic(name)
	ids := []string{name + "-commit", name + "-send"}
	var first, next []*kgo.Client
	for partition, id := range ids {
		client := r.producer(id, timeout)
		check(client.BeginTransaction())
		check(client.ProduceSync(r.ctx, record(topic, int32(partition), "lost")).FirstErr())
		first = append(first, client)
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
	say("refused commit", refusal(first[0].EndTransaction(r.ctx, kgo.TryCommit)))
	say("refused send", refusal(first[1].ProduceSync(r.ctx, record(topic, 1, "late")).FirstErr()))
	if !isFenced {
		succeed()
	}
	for partition, client := range next {
		r.commit(client, record(topic, int32(partition), end))
		client.Close()
	}
	for _, client := range first {
		client.Close()
	}
	r.sayValues(topic)
}

func (r run) offsets(group string) []string {
	offsets, err := r.admin.FetchOffsets(r.ctx, group)
	check(err)
	check(offsets.Error())
	found := []string{}
	offsets.Each(func(each kadm.OffsetResponse) {
		found = append(found, fmt.Sprintf("%d=%d", each.Partition, each.At))
	})
	sort.Strings(found)
	return found
}

// copy reads the committed records of a topic, and writes them and the offsets; the first attempt aborts.
func (r run) copy(source string) {
	target, group := r.topic("copy"), r.prefix+"-copier"
	session, err := kgo.NewGroupTransactSession(append(
		r.options("copier", time.Minute), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)...)
	check(err)
	defer session.Close()
	mayAbort := true
	for ended := 0; ended < partitions; {
		fetches := session.PollFetches(r.ctx)
		check(fetches.Err())
		if fetches.NumRecords() == 0 {
			continue
		}
		check(session.Begin())
		count := 0
		for _, each := range fetches.Records() {
			check(session.ProduceSync(r.ctx, record(target, each.Partition, string(each.Value))).FirstErr())
			if string(each.Value) == end {
				count++
			}
		}
		committed, err := session.End(r.ctx, kgo.TransactionEndTry(!mayAbort))
		check(err)
		if mayAbort {
			say("offsets after an abort", r.offsets(group))
			mayAbort = false
		}
		if committed {
			ended += count
		}
	}
	// The markers of a commit come after its answer.
	for len(r.offsets(group)) < partitions {
		time.Sleep(20 * time.Millisecond)
	}
	say("offsets", r.offsets(group))
	say("copy", r.values(target, kgo.ReadCommitted()))
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	check(err)
	r := run{ctx, os.Args[1], os.Args[2], client, kadm.NewClient(client)}
	source := r.commitAndAbort()
	r.refused("fence", time.Minute, true)
	r.refused("time-out", 300*time.Millisecond, false)
	r.copy(source)
}
