wrk.method = "POST"
wrk.body   = '{"score": 10}'
wrk.headers["Content-Type"] = "application/json"
