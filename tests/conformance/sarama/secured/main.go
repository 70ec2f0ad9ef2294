// A producer that logs in over TLS; secured_clients.py has its argument and its report.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

const wait = 30 * time.Second

type asked struct {
	Bootstrap, Topic, Authority, Mechanism, User, Password, Token string
	Count                                                         int
	PauseMs                                                       int `json:"pause_ms"`
}

func say(name string, value any) {
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{name: value}); err != nil {
		os.Exit(1)
	}
}

// tokens gives sarama the token of a file.
type tokens struct{ path string }

func (t tokens) Token() (*sarama.AccessToken, error) {
	token, err := os.ReadFile(t.path)
	return &sarama.AccessToken{Token: string(token)}, err
}

// exchange is sarama's client of SCRAM, which the library leaves to others.
type exchange struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (e *exchange) Begin(user, password, authorization string) error {
	client, err := e.hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	e.conversation = client.NewConversation()
	return nil
}

func (e *exchange) Step(challenge string) (string, error) { return e.conversation.Step(challenge) }

func (e *exchange) Done() bool { return e.conversation.Done() }

func (a asked) config() (*sarama.Config, error) {
	authority, err := os.ReadFile(a.Authority)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Metadata.Retry.Max = 1
	config.Metadata.Timeout = wait
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: trusted}
	login := &config.Net.SASL
	login.Enable = a.Mechanism != ""
	login.Mechanism = sarama.SASLMechanism(a.Mechanism)
	login.Version = sarama.SASLHandshakeV1
	login.User, login.Password = a.User, a.Password
	login.TokenProvider = tokens{a.Token}
	hash := scram.SHA512
	if a.Mechanism == "SCRAM-SHA-256" {
		hash = scram.SHA256
	}
	login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{hash: hash} }
	return config, nil
}

func (a asked) produce() error {
	config, err := a.config()
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer([]string{a.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for n := range a.Count {
		record := &sarama.ProducerMessage{Topic: a.Topic, Value: sarama.StringEncoder(fmt.Sprint(n))}
		if _, _, err := producer.SendMessage(record); err != nil {
			return err
		}
		say("delivered", n)
		time.Sleep(time.Duration(a.PauseMs) * time.Millisecond)
	}
	return nil
}

func main() {
	var a asked
	if err := json.Unmarshal([]byte(os.Args[1]), &a); err != nil {
		panic(err)
	}
	if err := a.produce(); err != nil {
		say("error", err.Error())
	}
}
