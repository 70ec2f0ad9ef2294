// Sends records in one batch with a sarama that writes no maximum timestamp: producer BOOTSTRAP TOPIC COUNT FIRST_MS.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	count, _ := strconv.Atoi(os.Args[3])
	first, _ := strconv.ParseInt(os.Args[4], 10, 64)
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Flush.Messages = count
	config.Producer.Flush.Frequency = 10 * time.Second
	producer, err := sarama.NewSyncProducer([]string{os.Args[1]}, config)
	if err != nil {
		fail(err)
	}
	var messages []*sarama.ProducerMessage
	for index := range count {
		messages = append(messages, &sarama.ProducerMessage{
			Topic:     os.Args[2],
			Value:     sarama.StringEncoder("record " + strconv.Itoa(index)),
			Timestamp: time.UnixMilli(first + int64(index)),
		})
	}
	if err := producer.SendMessages(messages); err != nil {
		fail(err)
	}
	if err := producer.Close(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
