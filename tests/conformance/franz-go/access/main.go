// franz-go's administrator with ACLs, quotas, users and delegation tokens: `access BOOTSTRAP USER PASSWORD`.
//
// It makes one of each, reads it and deletes it. One line of JSON on standard output has what it read and what was left;
// any error but that of tokens ends it with status 1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const wait = 30 * time.Second

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func acls(ctx context.Context, admin *kadm.Client) (read, left []string) {
	row := kadm.NewACLs().Topics("orders-").ResourcePatternType(kadm.ACLPatternPrefixed)
	row = row.Operations(kadm.OpRead).Allow("User:bob").AllowHosts("*")
	show := func() (found []string) {
		for _, filter := range must(admin.DescribeACLs(ctx, row)) {
			must(0, filter.Err)
			for _, each := range filter.Described {
				found = append(found, fmt.Sprintf("%v %v %v %v %v %v %v", each.Permission, each.Principal, each.Host,
					each.Operation, each.Type, each.Pattern, each.Name))
			}
		}
		return found
	}
	for _, each := range must(admin.CreateACLs(ctx, row)) {
		must(0, each.Err)
	}
	read = show()
	for _, each := range must(admin.DeleteACLs(ctx, row)) {
		must(0, each.Err)
	}
	return read, show()
}

func quotas(ctx context.Context, admin *kadm.Client) (read, left string) {
	name := "bob"
	entity := kadm.ClientQuotaEntity{{Type: "user", Name: &name}}
	wanted := []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &name}}
	show := func() string { return fmt.Sprint(must(admin.DescribeClientQuotas(ctx, true, wanted))) }
	alter := func(operation kadm.AlterClientQuotaOp) {
		entry := kadm.AlterClientQuotaEntry{Entity: entity, Ops: []kadm.AlterClientQuotaOp{operation}}
		for _, each := range must(admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{entry})) {
			must(0, each.Err)
		}
	}
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 1048576})
	read = show()
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true})
	return read, show()
}

func users(ctx context.Context, admin *kadm.Client) (read, left string) {
	made := kadm.UpsertSCRAM{User: "bob", Mechanism: kadm.ScramSha512, Iterations: 8192, Password: "bob-secret"}
	must(0, must(admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{made})).Error())
	read = fmt.Sprint(must(admin.DescribeUserSCRAMs(ctx, "bob"))["bob"].CredInfos)
	gone := kadm.DeleteSCRAM{User: "bob", Mechanism: kadm.ScramSha512}
	must(0, must(admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{gone}, nil)).Error())
	return read, fmt.Sprint(must(admin.DescribeUserSCRAMs(ctx, "bob"))["bob"].Err)
}

func main() {
	login := scram.Auth{User: os.Args[2], Pass: os.Args[3]}.AsSha512Mechanism()
	client := must(kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.SASL(login)))
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()

	seen := map[string]any{}
	seen["acls"], seen["acls left"] = acls(ctx, admin)
	seen["quotas"], seen["quotas left"] = quotas(ctx, admin)
	seen["user"], seen["user left"] = users(ctx, admin)
	_, err := admin.CreateDelegationToken(ctx, kadm.CreateDelegationToken{MaxLifetime: -1})
	seen["token"] = fmt.Sprint(err)
	must(0, json.NewEncoder(os.Stdout).Encode(seen))
}
