"""Schemas of a schema registry: the pinned versions that columns come from, and those that records name.

    pins → fitting | look_up → service_chassis.schema_registry

The driver alone asks the registry. MILLRACE_SCHEMA_REGISTRY and its like name it, as for admin-api.
"""
