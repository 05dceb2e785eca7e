"""Publishing by a Step Functions state machine, which runs the same protocol in steps of a Lambda function.

`machine.py` is the state machine, `handler.py` the function's code, `publisher.py` the caller that starts executions.
"""
