"""The requests and answers of admin-api, shape by shape; one file per noun."""
