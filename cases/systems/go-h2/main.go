// A service on Go's net/http that speaks HTTP/1.1 and HTTP/2 without TLS.
package main

import (
	"bytes"
	"flag"
	"log"
	"net/http"
	"time"
)

var (
	listen  = flag.String("listen", "", "address to listen on")
	delay   = flag.Duration("delay", 0, "time that a request takes")
	permits = flag.Int("permits", 1000, "maximum number of requests at a time")
	size    = flag.Int("size", 11, "size of a response in bytes")
	streams = flag.Int("max-concurrent-streams", 250, "maximum number of streams on a connection")
)

func main() {
	flag.Parse()
	body := bytes.Repeat([]byte("Hello World"), *size/11+1)[:*size]
	free := make(chan struct{}, *permits)
	http.HandleFunc("/", func(response http.ResponseWriter, _ *http.Request) {
		free <- struct{}{}
		defer func() { <-free }()
		time.Sleep(*delay)
		response.Write(body)
	})
	server := http.Server{
		Addr:      *listen,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: *streams},
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	log.Fatal(server.ListenAndServe())
}
