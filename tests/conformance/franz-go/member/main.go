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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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

type member struct {
	topic, group string
	client       *kgo.Client
}

func (m member) note(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		partitions := changed[m.topic]
		if partitions == nil {
			partitions = []int32{}
		}
		say(name, partitions)
	}
}

func (m member) answer(ctx context.Context, words []string) (any, error) {
	partition := int32(0)
	if len(words) > 1 {
		number, err := strconv.Atoi(words[1])
		if err != nil {
			return nil, err
		}
		partition = int32(number)
	}
	one := map[string][]int32{m.topic: {partition}}
	switch words[0] {
	case "pause":
		m.client.PauseFetchPartitions(one)
	case "resume":
		m.client.ResumeFetchPartitions(one)
	case "seek":
		offset, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return nil, err
		}
		m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{m.topic: {partition: {Epoch: -1, Offset: offset}}})
	case "commit":
		return nil, m.client.CommitUncommittedOffsets(ctx)
	case "lag":
		lags, err := kadm.NewClient(m.client).Lag(ctx, m.group)
		if err != nil {
			return nil, err
		}
		found := map[string]int64{}
		described := lags[m.group]
		for partition, lag := range described.Lag[m.topic] {
			found[strconv.Itoa(int(partition))] = lag.Lag
		}
		return found, described.Error()
	}
	return nil, nil
}

func main() {
	ctx := context.Background()
	m := member{topic: os.Args[2], group: os.Args[3]}
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Args[1]), kgo.ConsumerGroup(m.group), kgo.ConsumeTopics(m.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.SessionTimeout(6 * time.Second),
		kgo.OnPartitionsAssigned(m.note("assigned")), kgo.OnPartitionsRevoked(m.note("revoked")),
		kgo.OnPartitionsLost(m.note("revoked")),
	}
	if os.Args[4] != "" {
		options = append(options, kgo.InstanceID(os.Args[4]))
	}
	if os.Args[5] == "cooperative" {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fail(err)
	}
	m.client = client
	go func() {
		for {
			fetches := client.PollFetches(ctx)
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachRecord(func(record *kgo.Record) {
				value, err := strconv.ParseInt(string(record.Value), 10, 64)
				if err != nil {
					fail(err)
				}
				say("record", []int64{int64(record.Partition), record.Offset, value})
			})
		}
	}()
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		if words[0] == "close" {
			client.Close()
			return
		}
		answer, err := m.answer(ctx, words)
		if err != nil {
			fail(err)
		}
		say("done", answer)
	}
}
