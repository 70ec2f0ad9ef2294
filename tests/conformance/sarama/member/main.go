// A member of a group that a test drives; remote_members.py has its commands and reports.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var output sync.Mutex

func say(name string, value any) {
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{name: value}); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// member holds the session of the current generation.
type member struct {
	sync.Mutex
	topic, group string
	session      sarama.ConsumerGroupSession
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.Lock()
	m.session = session
	m.Unlock()
	say("assigned", owned(session, m.topic))
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	say("revoked", owned(session, m.topic))
	return nil
}

func owned(session sarama.ConsumerGroupSession, topic string) []int32 {
	return append([]int32{}, session.Claims()[topic]...)
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			value, err := strconv.ParseInt(string(message.Value), 10, 64)
			if err != nil {
				return err
			}
			session.MarkMessage(message, "")
			say("record", []int64{int64(message.Partition), message.Offset, value})
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) lag(client sarama.Client) (any, error) {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	partitions, err := client.Partitions(m.topic)
	if err != nil {
		return nil, err
	}
	committed, err := admin.ListConsumerGroupOffsets(m.group, map[string][]int32{m.topic: partitions})
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	for _, partition := range partitions {
		end, err := client.GetOffset(m.topic, partition, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		found[strconv.Itoa(int(partition))] = end - committed.GetBlock(m.topic, partition).Offset
	}
	return found, nil
}

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.InstanceId = os.Args[4]
	client, err := sarama.NewClient([]string{os.Args[1]}, config)
	if err != nil {
		fail(err)
	}
	m := &member{topic: os.Args[2], group: os.Args[3]}
	group, err := sarama.NewConsumerGroupFromClient(m.group, client)
	if err != nil {
		fail(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{m.topic}, m); err != nil && ctx.Err() == nil {
				fail(err)
			}
		}
	}()
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		var answer any
		switch words[0] {
		case "close":
			cancel()
			<-done
			if err := group.Close(); err != nil {
				fail(err)
			}
			return
		case "pause", "resume":
			partition, err := strconv.Atoi(words[1])
			if err != nil {
				fail(err)
			}
			one := map[string][]int32{m.topic: {int32(partition)}}
			if words[0] == "pause" {
				group.Pause(one)
			} else {
				group.Resume(one)
			}
		case "commit":
			m.Lock()
			m.session.Commit()
			m.Unlock()
		case "lag":
			if answer, err = m.lag(client); err != nil {
				fail(err)
			}
		}
		say("done", answer)
	}
}
