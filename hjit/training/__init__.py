"""Training of the cost model: random programs, measured schedules, and rounds of both."""
