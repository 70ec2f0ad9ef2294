"""What admin-api reads and answers, shape by shape; one file per noun."""
