// An order service on net/http and PostgreSQL.
package main

import (
	"crypto/sha256"
	"database/sql"
	"flag"
	"fmt"
	"html/template"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	_ "github.com/lib/pq"
)

const accounts = 10000

var (
	listen  = flag.String("listen", "", "address to listen on")
	handler = flag.String("handler", "hello", "what the service does for GET /")
	permits = flag.Int("permits", 1000, "maximum number of orders at a time")
	store   = flag.String("store", "none", "address of PostgreSQL")
	pool    = flag.Int("pool", 64, "maximum number of connections to PostgreSQL")
	payees  = flag.Int("payees", accounts, "number of accounts that payments go to")
	stock   = flag.String("stock", "", "URL of the stock service")
	items   = flag.Int("items", 1, "number of calls of the stock service per order")
	hosts   = flag.Int("max-conns-per-host", 0, "maximum number of connections to the stock service")
	noKeep  = flag.Bool("disable-keep-alives", false, "close each connection to the stock service after a request")
	delay   = flag.Duration("delay", 0, "time that an order takes")
	cached  = flag.Int("cached", 0, "number of orders in the cache")
	journal = flag.String("journal", "", "file of the journal")
	flush   = flag.Bool("flush", false, "flush each entry of the journal to disk")
)

type order struct {
	ID       int
	Customer string
	Price    float64
}

var page = template.Must(template.New("page").Parse(
	`<table>{{range .}}<tr><td>{{.ID}}<td>{{.Customer}}<td>{{printf "%.2f" .Price}}{{end}}</table>`))

func orders(n int) []*order {
	list := make([]*order, n)
	for i := range list {
		list[i] = &order{i, fmt.Sprint("customer ", i), float64(i) * 1.1}
	}
	return list
}

// hash uses CPU time like a proof of work.
func hash(rounds int) {
	sum := sha256.Sum256([]byte("order"))
	for range rounds {
		sum = sha256.Sum256(sum[:])
	}
}

func main() {
	flag.Parse()

	var database *sql.DB
	if *store != "none" {
		database = open()
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: 256,
		MaxConnsPerHost:     *hosts,
		DisableKeepAlives:   *noKeep,
	}
	client := &http.Client{Transport: transport}
	slots := make(chan struct{}, *permits)
	cache := orders(*cached)
	list := orders(100)
	var mutex sync.Mutex
	var entries *os.File
	if *journal != "" {
		var err error
		if entries, err = os.OpenFile(*journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			log.Fatal(err)
		}
	}

	handlers := map[string]func() error{
		"hello": func() error { return nil },
		"slots": func() error {
			slots <- struct{}{}
			defer func() { <-slots }()
			time.Sleep(*delay)
			return nil
		},
		"hash": func() error {
			hash(20000)
			return nil
		},
		"page": func() error { return page.Execute(io.Discard, list) },
		"cache": func() error {
			_ = strings.Repeat(cache[rand.IntN(len(cache))].Customer, 1000)
			return nil
		},
		"journal": func() error {
			mutex.Lock()
			defer mutex.Unlock()
			if _, err := fmt.Fprintln(entries, time.Now().Format(time.RFC3339Nano), "order"); err != nil {
				return err
			}
			if *flush {
				return entries.Sync()
			}
			return nil
		},
		"stock": func() error { return reserve(client) },
		"locked-stock": func() error {
			mutex.Lock()
			defer mutex.Unlock()
			return reserve(client)
		},
		"report": func() error {
			var n int
			return database.QueryRow("SELECT count(*) FROM accounts, pg_sleep(0.02) WHERE id < 100").Scan(&n)
		},
		"pay": func() error { return pay(database) },
	}
	work, ok := handlers[*handler]
	if !ok {
		log.Fatalf("unknown handler %q", *handler)
	}

	http.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if err := work(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		io.WriteString(w, "Hello World")
	})
	log.Fatal(http.ListenAndServe(*listen, nil))
}

// reserve calls the stock service once per item.
func reserve(client *http.Client) error {
	for range *items {
		response, err := client.Get(*stock)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// open connects to PostgreSQL and creates the accounts.
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
		"CREATE TABLE accounts (id int PRIMARY KEY, balance int)",
		fmt.Sprintf("INSERT INTO accounts SELECT id, 0 FROM generate_series(1, %d) id", accounts),
		"VACUUM ANALYZE accounts",
	} {
		if _, err := database.Exec(statement); err != nil {
			log.Fatal(err)
		}
	}
	return database
}

// pay adds money to an account and notifies the payee before the commit.
func pay(database *sql.DB) error {
	transaction, err := database.Begin()
	if err != nil {
		return err
	}
	defer transaction.Rollback()
	payee := 1 + rand.IntN(*payees)
	if _, err := transaction.Exec("UPDATE accounts SET balance = balance + 1 WHERE id = $1", payee); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond)
	return transaction.Commit()
}
