"""What topics exist and how they are configured: the durable catalog, the table of configs, creation and deletion."""
