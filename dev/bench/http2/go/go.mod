module floodmark.test/http2

go 1.24
