"""One module per API, its request and its response together, at every version Kafka has had."""
