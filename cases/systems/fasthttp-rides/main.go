// A ride service on fasthttp and PostgreSQL. See system.toml for the arguments.
package main

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	_ "github.com/lib/pq"
	"github.com/valyala/fasthttp"
)

const drivers = 10000

var (
	listen    = flag.String("listen", "", "address to listen on")
	handler   = flag.String("handler", "hello", "what a request does")
	keepAlive = flag.Bool("keep-alive", true, "keep client connections open")
	store     = flag.String("store", "none", "address of PostgreSQL")
	pool      = flag.Int("pool", 64, "maximum number of connections to PostgreSQL")
	upstream  = flag.String("upstream", "", "URL of the upstream")
	maxConns  = flag.Int("max-conns", 512, "maximum number of connections to the upstream")
	closeUp   = flag.Bool("close", false, "close each upstream connection after a request")
	level     = flag.Int("level", 1, "compression level")
	journal   = flag.String("journal", "", "file of the journal")
)

func main() {
	flag.Parse()
	work, ok := handlers()[*handler]
	if !ok {
		log.Fatalf("unknown handler %q", *handler)
	}
	server := &fasthttp.Server{
		DisableKeepalive: !*keepAlive,
		Handler: func(ctx *fasthttp.RequestCtx) {
			if err := work(); err != nil {
				ctx.Error(err.Error(), fasthttp.StatusInternalServerError)
				return
			}
			ctx.SetContentType("text/plain")
			ctx.SetBodyString("Hello World")
		},
	}
	log.Fatal(server.ListenAndServe(*listen))
}

func handlers() map[string]func() error {
	var database *sql.DB
	if *store != "none" {
		database = open()
	}
	entries, err := os.OpenFile(*journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	client := &fasthttp.Client{MaxConnsPerHost: *maxConns, MaxConnWaitTimeout: 10 * time.Second}
	export := newExport()
	var mutex sync.Mutex
	write := func(sync bool) error {
		mutex.Lock()
		defer mutex.Unlock()
		if _, err := fmt.Fprintln(entries, time.Now().Format(time.RFC3339Nano), "ride"); err != nil {
			return err
		}
		if sync {
			return entries.Sync()
		}
		return nil
	}

	return map[string]func() error{
		"hello": func() error { return nil },
		"sleep": func() error {
			time.Sleep(10 * time.Millisecond)
			return nil
		},
		"turns": func() error {
			mutex.Lock()
			defer mutex.Unlock()
			time.Sleep(10 * time.Millisecond)
			return nil
		},
		"hash": func() error {
			sum := sha256.Sum256([]byte("ride"))
			for range 20000 {
				sum = sha256.Sum256(sum[:])
			}
			return nil
		},
		"export": func() error {
			fasthttp.AppendGzipBytesLevel(nil, export, *level)
			return nil
		},
		"journal":         func() error { return write(false) },
		"durable-journal": func() error { return write(true) },
		"price":           func() error { return price(client) },
		"pay":             func() error { return pay(database, 1+rand.IntN(drivers)) },
		"pay-one":         func() error { return pay(database, 1) },
	}
}

// newExport returns a table of rides as text.
func newExport() []byte {
	var table bytes.Buffer
	random := rand.New(rand.NewPCG(1, 2))
	for ride := range 4000 {
		fmt.Fprintf(&table, "%d,driver %d,%.2f\n", ride, random.IntN(drivers), random.Float64()*100)
	}
	return table.Bytes()
}

// price calls the upstream.
func price(client *fasthttp.Client) error {
	request := fasthttp.AcquireRequest()
	defer fasthttp.ReleaseRequest(request)
	response := fasthttp.AcquireResponse()
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI(*upstream)
	if *closeUp {
		request.SetConnectionClose()
	}
	return client.Do(request, response)
}

// open connects to PostgreSQL and creates the table of drivers.
func open() *sql.DB {
	host, port, err := net.SplitHostPort(*store)
	if err != nil {
		log.Fatal(err)
	}
	database, err := sql.Open("postgres", fmt.Sprintf("host=%s port=%s user=bars dbname=bars sslmode=disable", host, port))
	if err != nil {
		log.Fatal(err)
	}
	database.SetMaxOpenConns(*pool)
	database.SetMaxIdleConns(*pool)
	for _, statement := range []string{
		fmt.Sprintf("CREATE TABLE drivers AS SELECT id, 0 AS balance FROM generate_series(1, %d) id", drivers),
		"ALTER TABLE drivers ADD PRIMARY KEY (id)",
		"VACUUM ANALYZE drivers",
	} {
		if _, err := database.Exec(statement); err != nil {
			log.Fatal(err)
		}
	}
	return database
}

// pay pays a driver in a transaction that takes 10 ms.
func pay(database *sql.DB, driver int) error {
	transaction, err := database.Begin()
	if err != nil {
		return err
	}
	defer transaction.Rollback()
	if _, err := transaction.Exec("UPDATE drivers SET balance = balance + 1 WHERE id = $1", driver); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond)
	return transaction.Commit()
}
