// A brewery's service on Echo and PostgreSQL. See system.toml for the arguments.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
)

var (
	listen      = flag.String("listen", "", "address to listen on")
	run         = flag.String("run", "", "directory with the certificate of the upstream")
	handler     = flag.String("handler", "hello", "what a request does")
	isLogged    = flag.Bool("log", false, "log each request")
	keepAlives  = flag.Bool("keep-alives", true, "keep connections open")
	connections = flag.Int("connections", 0, "maximum number of open connections; 0 for no limit")
	limit       = flag.Float64("limit", 0, "maximum number of requests per second; 0 for no limit")
	store       = flag.String("store", "none", "address of PostgreSQL")
	pool        = flag.Int("pool", 64, "maximum number of open connections to PostgreSQL")
	reuse       = flag.Bool("reuse", true, "reuse connections to the upstream")
	brewers     = flag.Int("brewers", 64, "number of goroutines that take orders from the queue")
	failures    = flag.Int("failures", 0, "percentage of orders that fail")
)

func main() {
	flag.Parse()
	work, err := newHandler(*handler)
	if err != nil {
		log.Fatal(err)
	}
	service := echo.New()
	service.HideBanner = true
	service.HidePort = true
	if *isLogged {
		service.Use(middleware.Logger())
	}
	if *limit > 0 {
		store := middleware.NewRateLimiterMemoryStore(rate.Limit(*limit))
		service.Use(middleware.RateLimiter(store))
	}
	service.GET("/", func(request echo.Context) error {
		if err := work(); err != nil {
			return request.String(http.StatusInternalServerError, err.Error())
		}
		return request.String(http.StatusOK, "Hello World")
	})
	service.Server.SetKeepAlivesEnabled(*keepAlives)
	service.Listener, err = net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	if *connections > 0 {
		service.Listener = netutil.LimitListener(service.Listener, *connections)
	}
	log.Fatal(service.Start(*listen))
}

func newHandler(name string) (func() error, error) {
	switch name {
	case "hello":
		return func() error { return nil }, nil
	case "ferment":
		return func() error { time.Sleep(20 * time.Millisecond); return nil }, nil
	case "mash":
		return mash, nil
	case "recipe":
		return recipe(false), nil
	case "recipe-exclusive":
		return recipe(true), nil
	case "brew":
		return brew(), nil
	case "order":
		return order, nil
	case "malt":
		return malt()
	case "report":
		return report()
	}
	return nil, fmt.Errorf("unknown handler %q", name)
}

// mash uses CPU time.
func mash() error {
	sum := sha256.Sum256([]byte{byte(rand.IntN(256))})
	for range 20000 {
		sum = sha256.Sum256(sum[:])
	}
	if sum == [32]byte{} {
		return errors.New("unexpected hash")
	}
	return nil
}

// recipe returns a handler that reads a recipe, which takes 10 ms. It holds the lock for readers, or
// if isExclusive, for writers.
func recipe(isExclusive bool) func() error {
	var mutex sync.RWMutex
	lock := mutex.RLocker()
	if isExclusive {
		lock = &mutex
	}
	return func() error {
		lock.Lock()
		defer lock.Unlock()
		time.Sleep(10 * time.Millisecond)
		return nil
	}
}

// brew returns a handler that waits until a brewer has taken its order from the queue and completed
// it, which takes 20 ms.
func brew() func() error {
	queue := make(chan chan struct{}, 1000)
	for range *brewers {
		go func() {
			for done := range queue {
				time.Sleep(20 * time.Millisecond)
				close(done)
			}
		}()
	}
	return func() error {
		done := make(chan struct{})
		queue <- done
		<-done
		return nil
	}
}

// order takes 20 ms, and then sometimes fails.
func order() error {
	time.Sleep(20 * time.Millisecond)
	if rand.IntN(100) < *failures {
		return errors.New("out of stock")
	}
	return nil
}

// malt starts an HTTPS upstream, and returns a handler that calls it.
func malt() (func() error, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	respond := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "malt") }
	go func() {
		log.Fatal(http.ServeTLS(listener, http.HandlerFunc(respond), *run+"/cert.pem", *run+"/key.pem"))
	}()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives:   !*reuse,
		MaxIdleConnsPerHost: 256,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
	}}
	url := "https://" + listener.Addr().String()
	return func() error {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}, nil
}

// report returns a handler that runs a query that takes 20 ms.
func report() (func() error, error) {
	host, port, err := net.SplitHostPort(*store)
	if err != nil {
		return nil, err
	}
	database, err := pgxpool.New(context.Background(), fmt.Sprintf(
		"host=%s port=%s user=bars dbname=bars sslmode=disable pool_max_conns=%d", host, port, *pool))
	return func() error {
		_, err := database.Exec(context.Background(), "SELECT pg_sleep(0.02)")
		return err
	}, err
}
