"""One run of a pipeline: its queries, their restarts and what is seen of them."""
