"""The ring around every request of an HTTP service: limits, access, bodies, errors, rates and the audit log.

A service has its own routes (FastAPI), settings, roles and error codes. It gives them to the ring as `Rules` and
`HttpSettings`:

    access = Access(RULES, settings)                                    tokens, roles, rates
    app.add_middleware(RequestRing, access=access, hosts=Hosts.of(settings), metrics=HttpMetrics(registry))
    add_error_handlers(app, RULES, no_such_path)
    async with serving(app, sockets, Connections(RULES)): …             uvicorn, with a bound on everything

Gateway and storage never import this package: it needs FastAPI, Starlette and uvicorn. Their probes and metrics have
`service_chassis.small_http`.
"""
