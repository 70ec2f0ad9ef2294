// Stock franz-go against a broker: `conformance BOOTSTRAP PREFIX RECORDS`.
//
// For every codec there is a topic PREFIX-CODEC with four partitions. Two members of group PREFIX share all partitions
// before anything is produced; RECORDS keyed records with headers go to each topic; the members must see each record
// once, whole, and in order within its partition; they commit and leave. Then a tenth as many records follow, and one
// new member resumes at the committed offsets. One line of JSON on standard output has the counts; any
// difference ends the program with status 1.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 4
	wait       = 60 * time.Second
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

var compression = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type place struct {
	topic     string
	partition int32
}

type run struct {
	bootstrap string
	prefix    string
}

func (r run) topic(codec string) string { return r.prefix + "-" + codec }

func (r run) topics() []string {
	names := make([]string, len(codecs))
	for i, codec := range codecs {
		names[i] = r.topic(codec)
	}
	return names
}

// record is the record with number n of a codec; every hundredth is a tombstone.
func (r run) record(codec string, n int) *kgo.Record {
	record := &kgo.Record{
		Topic: r.topic(codec),
		Key:   fmt.Appendf(nil, "key-%d", n%97),
		Headers: []kgo.RecordHeader{
			{Key: "n", Value: []byte(strconv.Itoa(n))},
			{Key: "codec", Value: []byte(codec)},
		},
	}
	if n%100 != 99 {
		record.Value = fmt.Appendf(nil, "%s:%d:%s", codec, n, strings.Repeat("x", n%500))
	}
	return record
}

// seen has the records of all members of the group.
type seen struct {
	sync.Mutex
	run     run
	first   int
	numbers map[string]map[int]bool
	last    map[place]int
	err     error
}

func newSeen(r run, first int) *seen {
	s := &seen{run: r, first: first, numbers: map[string]map[int]bool{}, last: map[place]int{}}
	for _, codec := range codecs {
		s.numbers[codec] = map[int]bool{}
	}
	return s
}

func (s *seen) add(record *kgo.Record) error {
	s.Lock()
	defer s.Unlock()
	at := place{record.Topic, record.Partition}
	if len(record.Headers) != 2 || record.Headers[0].Key != "n" || record.Headers[1].Key != "codec" {
		return fmt.Errorf("%v: headers %v", at, record.Headers)
	}
	codec := string(record.Headers[1].Value)
	n, err := strconv.Atoi(string(record.Headers[0].Value))
	if err != nil {
		return err
	}
	expected := s.run.record(codec, n)
	sameValue := bytes.Equal(record.Value, expected.Value) && (record.Value == nil) == (expected.Value == nil)
	if record.Topic != expected.Topic || !bytes.Equal(record.Key, expected.Key) || !sameValue {
		return fmt.Errorf("%v: record %d of %s differs", at, n, codec)
	}
	if n < s.first || s.numbers[codec][n] {
		return fmt.Errorf("%v: record %d came twice or too late", at, n)
	}
	if before, known := s.last[at]; known && before >= n {
		return fmt.Errorf("%v: record %d is out of order", at, n)
	}
	s.numbers[codec][n] = true
	s.last[at] = n
	return nil
}

func (s *seen) fail(err error) {
	s.Lock()
	defer s.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *seen) counts() []int {
	s.Lock()
	defer s.Unlock()
	result := make([]int, len(codecs))
	for i, codec := range codecs {
		result[i] = len(s.numbers[codec])
	}
	return result
}

func (s *seen) complete(count int) bool {
	for _, n := range s.counts() {
		if n < count {
			return false
		}
	}
	return true
}

func (s *seen) until(condition func() bool, text func() string) error {
	deadline := time.Now().Add(wait)
	for {
		s.Lock()
		err := s.err
		s.Unlock()
		if err != nil {
			return err
		}
		if condition() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("timed out: %s", text())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// member is one member of the group, polling until the command to commit.
type member struct {
	sync.Mutex
	client   *kgo.Client
	assigned map[place]bool
	count    int
	stop     context.CancelFunc
	done     chan struct{}
}

func (r run) startMember(name string, s *seen) (*member, error) {
	m := &member{assigned: map[place]bool{}, done: make(chan struct{})}
	note := func(assigned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.Lock()
			defer m.Unlock()
			for topic, indexes := range changed {
				for _, index := range indexes {
					if assigned {
						m.assigned[place{topic, index}] = true
					} else {
						delete(m.assigned, place{topic, index})
					}
				}
			}
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(r.bootstrap), kgo.ClientID(name), kgo.ConsumerGroup(r.prefix),
		kgo.ConsumeTopics(r.topics()...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300*time.Millisecond), kgo.SessionTimeout(10*time.Second),
		kgo.OnPartitionsAssigned(note(true)), kgo.OnPartitionsRevoked(note(false)), kgo.OnPartitionsLost(note(false)),
	)
	if err != nil {
		return nil, err
	}
	m.client = client
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	go func() {
		defer close(m.done)
		for {
			fetches := client.PollFetches(ctx)
			if ctx.Err() != nil {
				return
			}
			fetches.EachError(func(topic string, partition int32, err error) {
				s.fail(fmt.Errorf("%s: fetch of %s-%d: %w", name, topic, partition, err))
			})
			fetches.EachRecord(func(record *kgo.Record) {
				if err := s.add(record); err != nil {
					s.fail(fmt.Errorf("%s: %w", name, err))
				}
				m.Lock()
				m.count++
				m.Unlock()
			})
		}
	}()
	return m, nil
}

func (m *member) owned() map[place]bool {
	m.Lock()
	defer m.Unlock()
	copied := make(map[place]bool, len(m.assigned))
	for at := range m.assigned {
		copied[at] = true
	}
	return copied
}

func (m *member) commit(ctx context.Context) error {
	m.stop()
	<-m.done
	return m.client.CommitUncommittedOffsets(ctx)
}

func (r run) produce(ctx context.Context, first, count int) error {
	for _, codec := range codecs {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(r.bootstrap), kgo.ProducerBatchCompression(compression[codec]),
			kgo.ProducerLinger(5*time.Millisecond),
		)
		if err != nil {
			return err
		}
		records := make([]*kgo.Record, count)
		for i := range records {
			records[i] = r.record(codec, first+i)
		}
		err = client.ProduceSync(ctx, records...).FirstErr()
		client.Close()
		if err != nil {
			return fmt.Errorf("produce with %s: %w", codec, err)
		}
	}
	return nil
}

func (r run) committed(ctx context.Context, admin *kadm.Client) (int64, error) {
	offsets, err := admin.FetchOffsets(ctx, r.prefix)
	if err != nil {
		return 0, err
	}
	var total int64
	offsets.Each(func(offset kadm.OffsetResponse) { total += offset.At })
	return total, offsets.Error()
}

func disjoint(left, right map[place]bool) bool {
	for at := range left {
		if right[at] {
			return false
		}
	}
	return true
}

type codecResult struct {
	Consumed int `json:"consumed"`
	Resumed  int `json:"resumed"`
}

type result struct {
	Client    string                 `json:"client"`
	Codecs    map[string]codecResult `json:"codecs"`
	Members   []int                  `json:"members"`
	Committed []int64                `json:"committed"`
}

func (r run) all(ctx context.Context, records int) (*result, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	created, err := admin.CreateTopics(ctx, partitions, -1, nil, r.topics()...)
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", err)
	}

	both := newSeen(r, 0)
	first, err := r.startMember("first", both)
	if err != nil {
		return nil, err
	}
	second, err := r.startMember("second", both)
	if err != nil {
		return nil, err
	}
	all := len(codecs) * partitions
	if err := both.until(func() bool {
		one, two := first.owned(), second.owned()
		return len(one) > 0 && len(two) > 0 && len(one)+len(two) == all && disjoint(one, two)
	}, func() string { return fmt.Sprintf("assignments %d and %d", len(first.owned()), len(second.owned())) }); err != nil {
		return nil, err
	}
	if err := r.produce(ctx, 0, records); err != nil {
		return nil, err
	}
	if err := both.until(func() bool { return both.complete(records) },
		func() string { return fmt.Sprintf("consumed %v of %d each", both.counts(), records) }); err != nil {
		return nil, err
	}
	// Both commit before either leaves: the rebalance that follows takes positions from committed offsets.
	for _, m := range []*member{first, second} {
		if err := m.commit(ctx); err != nil {
			return nil, fmt.Errorf("commit: %w", err)
		}
	}
	first.client.Close()
	second.client.Close()
	committedFirst, err := r.committed(ctx, admin)
	if err != nil {
		return nil, err
	}

	resumedRecords := records / 10
	if err := r.produce(ctx, records, resumedRecords); err != nil {
		return nil, err
	}
	resumed := newSeen(r, records)
	successor, err := r.startMember("successor", resumed)
	if err != nil {
		return nil, err
	}
	if err := resumed.until(func() bool { return resumed.complete(resumedRecords) },
		func() string { return fmt.Sprintf("resumed %v of %d each", resumed.counts(), resumedRecords) }); err != nil {
		return nil, err
	}
	if err := successor.commit(ctx); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	successor.client.Close()
	committedLast, err := r.committed(ctx, admin)
	if err != nil {
		return nil, err
	}

	answer := &result{
		Client: "franz-go " + libraryVersion(), Codecs: map[string]codecResult{},
		Members: []int{first.count, second.count}, Committed: []int64{committedFirst, committedLast},
	}
	before, after := both.counts(), resumed.counts()
	for i, codec := range codecs {
		answer.Codecs[codec] = codecResult{before[i], after[i]}
	}
	return answer, nil
}

func libraryVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: conformance BOOTSTRAP PREFIX RECORDS")
		os.Exit(2)
	}
	records, err := strconv.Atoi(os.Args[3])
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*wait)
		defer cancel()
		var answer *result
		if answer, err = (run{os.Args[1], os.Args[2]}).all(ctx, records); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(answer)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
