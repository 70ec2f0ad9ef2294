// Values by the schemas of a registry, as franz-go's sr writes and reads them. A line of standard input is
//
//	{"url", "kind": "JSON" | "AVRO", "topic", "schema", "value"}      → {"data": BASE64}, registered as TOPIC-value
//	{"url", "kind", "topic", "data": BASE64}                          → {"value"}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"
)

type asked struct {
	URL, Kind, Topic, Schema string
	Value                    any
	Data                     []byte
}

// order is the type of every value.
type order struct {
	ID    int64                `json:"id" avro:"id"`
	Note  *string              `json:"note" avro:"note"`
	State string               `json:"state" avro:"state"`
	Tags  map[string][]float64 `json:"tags" avro:"tags"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		found, err := answer(lines.Bytes())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(string(found))
	}
}

func answer(line []byte) ([]byte, error) {
	var given asked
	var value struct{ Value *order }
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(line, &value); err != nil {
		return nil, err
	}
	client, err := sr.NewClient(sr.URLs(given.URL))
	if err != nil {
		return nil, err
	}
	subject := given.Topic + "-value"
	kind := map[string]sr.SchemaType{"JSON": sr.TypeJSON, "AVRO": sr.TypeAvro}[given.Kind]
	var found sr.SubjectSchema
	if given.Data == nil {
		found, err = client.CreateSchema(context.Background(), subject, sr.Schema{Schema: given.Schema, Type: kind})
	} else {
		found, err = client.SchemaByVersion(context.Background(), subject, -1)
	}
	if err != nil {
		return nil, err
	}
	var serde sr.Serde
	options := []sr.EncodingOpt{sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal)}
	if given.Kind == "AVRO" {
		schema, err := avro.Parse(found.Schema.Schema)
		if err != nil {
			return nil, err
		}
		options = []sr.EncodingOpt{
			sr.EncodeFn(func(value any) ([]byte, error) { return avro.Marshal(schema, value) }),
			sr.DecodeFn(func(data []byte, value any) error { return avro.Unmarshal(schema, data, value) }),
		}
	}
	serde.Register(found.ID, order{}, options...)
	if given.Data == nil {
		data, err := serde.Encode(*value.Value)
		if err != nil {
			return nil, err
		}
		return json.Marshal(map[string][]byte{"data": data})
	}
	var read order
	if err := serde.Decode(given.Data, &read); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]order{"value": read})
}
