// Responds 429 to requests that find no token in a bucket: bucket PORT TOKENS_PER_S BURST.
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

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	perSecond, burst := number(os.Args[2]), number(os.Args[3])
	tokens, filled := burst, time.Now()
	var lock sync.Mutex
	take := func() bool {
		lock.Lock()
		defer lock.Unlock()
		now := time.Now()
		tokens = min(burst, tokens+now.Sub(filled).Seconds()*perSecond)
		filled = now
		if tokens < 1 {
			return false
		}
		tokens--
		return true
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !take() {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		io.WriteString(w, "ok\n")
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
