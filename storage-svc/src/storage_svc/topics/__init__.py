"""The topics that exist and their configuration: the durable catalog, the table of configs, creation and deletion."""
