// Command server serves HTTP/2 with net/http: server RUN PORT http|https.
//
// It uses the certificate in the directory RUN, and writes a line per request to RUN/access.log
// before it exits on SIGTERM.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

func main() {
	run, port, scheme := os.Args[1], os.Args[2], os.Args[3]
	file, err := os.Create(run + "/access.log")
	if err != nil {
		log.Fatal(err)
	}
	var mutex sync.Mutex
	lines := bufio.NewWriter(file)
	handle := func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		fmt.Fprintf(lines, "%s %d\n", r.Proto, http.StatusOK)
		mutex.Unlock()
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, "Hello World")
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{
		Addr:      "127.0.0.1:" + port,
		Handler:   http.HandlerFunc(handle),
		Protocols: protocols,
	}
	stop, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	go func() {
		if scheme == "https" {
			log.Fatal(server.ListenAndServeTLS(run+"/cert.pem", run+"/key.pem"))
		}
		log.Fatal(server.ListenAndServe())
	}()
	<-stop.Done()
	mutex.Lock()
	if err := lines.Flush(); err != nil {
		log.Fatal(err)
	}
}
