"""The steps between decoding and sinks: join, derive, rules, dedupe, statements. Each keeps refused rows."""
