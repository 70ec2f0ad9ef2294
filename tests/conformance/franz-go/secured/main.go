// A producer that logs in over TLS; secured_clients.py has its argument and its report.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
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

func (a asked) login() sasl.Mechanism {
	switch a.Mechanism {
	case "PLAIN":
		return plain.Auth{User: a.User, Pass: a.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: a.User, Pass: a.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: a.User, Pass: a.Password}.AsSha512Mechanism()
	default:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := os.ReadFile(a.Token)
			return oauth.Auth{Token: string(token)}, err
		})
	}
}

func (a asked) produce() error {
	authority, err := os.ReadFile(a.Authority)
	if err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	options := []kgo.Opt{
		kgo.SeedBrokers(a.Bootstrap),
		kgo.DefaultProduceTopic(a.Topic),
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}),
		kgo.RecordDeliveryTimeout(wait),
	}
	if a.Mechanism != "" {
		options = append(options, kgo.SASL(a.login()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := client.Ping(within); err != nil {
		return err
	}
	for n := range a.Count {
		record := kgo.StringRecord(fmt.Sprint(n))
		if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
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
