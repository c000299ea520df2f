// Responds after holding one of PERMITS permits for MS milliseconds: pool PORT PERMITS MS.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	permits, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	hold, err := time.ParseDuration(os.Args[3] + "ms")
	if err != nil {
		log.Fatal(err)
	}
	pool := make(chan struct{}, permits)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		pool <- struct{}{}
		time.Sleep(hold)
		<-pool
		io.WriteString(w, "ok\n")
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
