// A wallet service on Hertz and PostgreSQL. See system.toml for the arguments.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"
)

const wallets = 10000

var (
	listen    = flag.String("listen", "", "address to listen on")
	handler   = flag.String("handler", "hello", "what a request does")
	keepAlive = flag.Bool("keep-alive", true, "keep client connections open")
	store     = flag.String("store", "none", "address of PostgreSQL")
	pool      = flag.Int("pool", 64, "maximum number of connections to PostgreSQL")
	upstream  = flag.String("upstream", "", "URL of the upstream")
	maxConns  = flag.Int("max-conns", 512, "maximum number of connections to the upstream")
	slots     = flag.Int("slots", 1000, "maximum number of exports at a time")
	limit     = flag.Int("limit", 1000000, "maximum number of requests per second")
	isDelayed = flag.Bool("delay", false, "delay requests above the limit instead of rejecting them")
	level     = flag.Int("level", 1, "compression level")
	cached    = flag.Int("cached", 1000, "number of cached wallets")
	failures  = flag.Int("failures", 0, "percentage of payments that fail")
	journal   = flag.String("journal", "", "file of the journal")
)

func main() {
	flag.Parse()
	hlog.SetLevel(hlog.LevelError)
	work, err := newHandler(*handler)
	if err != nil {
		log.Fatal(err)
	}
	service := server.New(server.WithHostPorts(*listen), server.WithKeepAlive(*keepAlive))
	service.GET("/", limiter(), func(_ context.Context, request *app.RequestContext) {
		if err := work(); err != nil {
			request.String(500, err.Error())
			return
		}
		request.String(200, "Hello World")
	})
	if err := service.Run(); err != nil {
		log.Fatal(err)
	}
}

// limiter returns a middleware that limits the request rate.
func limiter() app.HandlerFunc {
	limiter := rate.NewLimiter(rate.Limit(*limit), max(1, *limit/10))
	return func(ctx context.Context, request *app.RequestContext) {
		if *isDelayed {
			if err := limiter.Wait(ctx); err != nil {
				request.AbortWithStatus(500)
			}
		} else if !limiter.Allow() {
			request.AbortWithStatus(429)
		}
	}
}

func newHandler(name string) (func() error, error) {
	switch name {
	case "hello":
		return func() error { return nil }, nil
	case "hash":
		return hash, nil
	case "statement":
		return statement(), nil
	case "cache":
		return cache(), nil
	case "export":
		return export(), nil
	case "pay":
		return pay, nil
	case "journal":
		return appendLines(false)
	case "durable-journal":
		return appendLines(true)
	case "rate":
		return fetchRate(false)
	case "rate-locked":
		return fetchRate(true)
	case "report":
		return report()
	case "move":
		return move(wallets)
	case "move-one":
		return move(1)
	}
	return nil, fmt.Errorf("unknown handler %q", name)
}

// hash uses CPU time.
func hash() error {
	sum := sha256.Sum256([]byte("wallet"))
	for range 20000 {
		sum = sha256.Sum256(sum[:])
	}
	return nil
}

// statement returns a handler that compresses 800 transactions.
func statement() func() error {
	var text bytes.Buffer
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 800 {
		fmt.Fprintf(&text, "%d,wallet %d,%.2f EUR\n", i, random.IntN(wallets), random.Float64()*100)
	}
	return func() error {
		var file bytes.Buffer
		writer, err := gzip.NewWriterLevel(&file, *level)
		if err != nil {
			return err
		}
		if _, err := writer.Write(text.Bytes()); err != nil {
			return err
		}
		return writer.Close()
	}
}

// A wallet in memory.
type wallet struct {
	owner *string
	next  *wallet
}

// cache returns a handler that replaces 200 cached wallets.
func cache() func() error {
	entries := make([]atomic.Pointer[wallet], *cached)
	newWallet := func(i int) *wallet {
		owner := fmt.Sprint("owner ", i)
		return &wallet{&owner, &wallet{}}
	}
	for i := range entries {
		entries[i].Store(newWallet(i))
	}
	return func() error {
		for range 200 {
			i := rand.IntN(len(entries))
			entries[i].Store(newWallet(i))
		}
		return nil
	}
}

// export returns a handler that takes 20 ms and holds a slot.
func export() func() error {
	free := make(chan struct{}, *slots)
	return func() error {
		free <- struct{}{}
		time.Sleep(20 * time.Millisecond)
		<-free
		return nil
	}
}

// pay takes 5 ms and sometimes fails, as if the payment provider were overloaded.
func pay() error {
	time.Sleep(5 * time.Millisecond)
	if rand.IntN(100) < *failures {
		return errors.New("the payment provider is overloaded")
	}
	return nil
}

// appendLines returns a handler that appends a line to the journal.
func appendLines(isDurable bool) (func() error, error) {
	file, err := os.OpenFile(*journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	var mutex sync.Mutex
	return func() error {
		mutex.Lock()
		defer mutex.Unlock()
		if _, err := fmt.Fprintln(file, time.Now().Format(time.RFC3339Nano), "paid"); err != nil {
			return err
		}
		if isDurable {
			return file.Sync()
		}
		return nil
	}, nil
}

// fetchRate returns a handler that asks the upstream for an exchange rate.
func fetchRate(isLocked bool) (func() error, error) {
	client, err := client.NewClient(
		client.WithMaxConnsPerHost(*maxConns),
		client.WithMaxConnWaitTimeout(10*time.Second),
	)
	if err != nil {
		return nil, err
	}
	fetch := func() error {
		status, _, err := client.Get(context.Background(), nil, *upstream)
		if err == nil && status != 200 {
			err = fmt.Errorf("the upstream returned status %d", status)
		}
		return err
	}
	if !isLocked {
		return fetch, nil
	}
	var mutex sync.Mutex
	return func() error {
		mutex.Lock()
		defer mutex.Unlock()
		return fetch()
	}, nil
}

// connect connects to PostgreSQL and creates the table of wallets.
func connect() (*pgxpool.Pool, error) {
	host, port, err := net.SplitHostPort(*store)
	if err != nil {
		return nil, err
	}
	address := "host=%s port=%s user=bars dbname=bars sslmode=disable pool_max_conns=%d"
	database, err := pgxpool.New(context.Background(), fmt.Sprintf(address, host, port, *pool))
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{
		fmt.Sprintf("CREATE TABLE wallets AS SELECT id, 0 AS balance FROM generate_series(1, %d) AS id", wallets),
		"ALTER TABLE wallets ADD PRIMARY KEY (id)",
	} {
		if _, err := database.Exec(context.Background(), statement); err != nil {
			return nil, err
		}
	}
	return database, nil
}

// report returns a handler that runs a query that takes 20 ms.
func report() (func() error, error) {
	database, err := connect()
	return func() error {
		_, err := database.Exec(context.Background(), "SELECT pg_sleep(0.02)")
		return err
	}, err
}

// move returns a handler that updates one of COUNT wallets in a transaction that takes 10 ms.
func move(count int) (func() error, error) {
	database, err := connect()
	return func() error {
		ctx := context.Background()
		transaction, err := database.Begin(ctx)
		if err != nil {
			return err
		}
		defer transaction.Rollback(ctx)
		update := "UPDATE wallets SET balance = balance + 1 WHERE id = $1"
		if _, err := transaction.Exec(ctx, update, 1+rand.IntN(count)); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
		return transaction.Commit(ctx)
	}, err
}
