"""The endpoints, one file per noun. Each file's `add_operations` adds its own to an application."""
