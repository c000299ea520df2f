// A pool that takes 25 % longer per request once more than QUEUE requests wait, until it has been
// idle for 100 ms: hysteresis PORT PERMITS MS QUEUE.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	slowdown = 1.25
	recovery = 100 * time.Millisecond
)

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	permits, ms, queue := int(number(os.Args[2])), number(os.Args[3]), int(number(os.Args[4]))
	pool := make(chan struct{}, permits)
	var lock sync.Mutex
	present, slow, idleSince := 0, false, time.Now()
	enter := func() {
		lock.Lock()
		defer lock.Unlock()
		if present == 0 && time.Since(idleSince) >= recovery {
			slow = false
		}
		present++
		slow = slow || present > permits+queue
	}
	leave := func() {
		lock.Lock()
		defer lock.Unlock()
		present--
		if present == 0 {
			idleSince = time.Now()
		}
	}
	hold := func() time.Duration {
		lock.Lock()
		defer lock.Unlock()
		factor := 1.0
		if slow {
			factor = slowdown
		}
		return time.Duration(factor * ms * float64(time.Millisecond))
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		enter()
		pool <- struct{}{}
		time.Sleep(hold())
		<-pool
		leave()
		io.WriteString(w, "ok\n")
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
