// A service for a fleet of vehicles on Gin and PostgreSQL. See system.toml for the arguments.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	_ "github.com/lib/pq"
	"golang.org/x/sync/semaphore"
)

const vehicles = 10000

var (
	listen   = flag.String("listen", "", "address to listen on")
	handler  = flag.String("handler", "hello", "what a request does")
	isLogged = flag.Bool("log", false, "log each request")
	store    = flag.String("store", "none", "address of PostgreSQL")
	pool     = flag.Int("pool", 64, "maximum number of open connections to PostgreSQL")
	commit   = flag.String("synchronous-commit", "on", "whether commits wait for the disk")
	index    = flag.Bool("index", true, "index the number plates")
	upstream = flag.String("upstream", "", "URL of the upstream")
	conns    = flag.Int("conns", 0, "maximum number of connections to the upstream; 0 for no limit")
	idle     = flag.Int("idle", 256, "maximum number of idle connections to the upstream")
	jobs     = flag.Int64("jobs", 1000, "maximum number of route calculations at a time")
	cached   = flag.Int("cached", 1000, "number of cached positions")
)

func main() {
	flag.Parse()
	gin.SetMode(gin.ReleaseMode)
	work, err := newHandler(*handler)
	if err != nil {
		log.Fatal(err)
	}
	service := gin.New()
	if *isLogged {
		service.Use(gin.Logger())
	}
	service.GET("/", func(request *gin.Context) {
		if err := work(); err != nil {
			request.String(500, err.Error())
			return
		}
		request.String(200, "Hello World")
	})
	if err := service.Run(*listen); err != nil {
		log.Fatal(err)
	}
}

func newHandler(name string) (func() error, error) {
	switch name {
	case "hello":
		return func() error { return nil }, nil
	case "geofence":
		return geofence, nil
	case "plates":
		return plates(false), nil
	case "plates-compile":
		return plates(true), nil
	case "nearest":
		return nearest(false), nil
	case "nearest-locked":
		return nearest(true), nil
	case "positions":
		return positions(), nil
	case "route":
		return route(), nil
	case "traffic":
		return traffic(), nil
	case "report":
		return report()
	case "reserve":
		return reserve()
	case "find":
		return find()
	case "refuel":
		return refuel(vehicles)
	case "refuel-one":
		return refuel(1)
	case "trip":
		return trip()
	}
	return nil, fmt.Errorf("unknown handler %q", name)
}

// geofence tests whether a vehicle is inside a polygon with 20,000 corners.
func geofence() error {
	x, y, inside := rand.Float64(), rand.Float64(), false
	corner := func(i int) (float64, float64) {
		angle := float64(i) * 2 * math.Pi / 20000
		return math.Cos(angle), math.Sin(angle)
	}
	x1, y1 := corner(0)
	for i := range 20000 {
		x2, y2 := corner(i + 1)
		if (y1 > y) != (y2 > y) && x < (x2-x1)*(y-y1)/(y2-y1)+x1 {
			inside = !inside
		}
		x1, y1 = x2, y2
	}
	if math.IsNaN(x1) {
		return fmt.Errorf("no polygon: %v", inside)
	}
	return nil
}

const platePattern = `^(?:[A-ZÄÖÜ]{1,3}-[A-Z]{1,2} [1-9]\d{0,3}[EH]?|(?:BG|LD|BWL|NL|THL)-\d{1,4}|[0-9]{1,3}-[0-9]{1,5})$`

// plates returns a handler that checks 20 number plates.
func plates(compiles bool) func() error {
	pattern := regexp.MustCompile(platePattern)
	return func() error {
		for i := range 20 {
			pattern := pattern
			if compiles {
				pattern = regexp.MustCompile(platePattern)
			}
			if plate := fmt.Sprintf("AB-C %d", 1000+i); !pattern.MatchString(plate) {
				return fmt.Errorf("invalid number plate %q", plate)
			}
		}
		return nil
	}
}

// A position of a vehicle.
type position struct {
	Vehicle   string
	Latitude  float64
	Longitude float64
}

func newPosition(i int) position {
	return position{fmt.Sprint("vehicle ", i), rand.Float64() * 90, rand.Float64() * 180}
}

// nearest returns a handler that finds the nearest of 20,000 vehicles. If isLocked, it holds the
// mutex that protects their positions meanwhile.
func nearest(isLocked bool) func() error {
	var mutex sync.Mutex
	current := make([]position, 20000)
	for i := range current {
		current[i] = newPosition(i)
	}
	return func() error {
		if isLocked {
			mutex.Lock()
			defer mutex.Unlock()
		}
		customer, least := newPosition(0), math.Inf(1)
		for _, vehicle := range current {
			north := vehicle.Latitude - customer.Latitude
			east := (vehicle.Longitude - customer.Longitude) * math.Cos(customer.Latitude*math.Pi/180)
			least = min(least, math.Hypot(north, east))
		}
		if math.IsInf(least, 1) {
			return errors.New("there is no vehicle")
		}
		return nil
	}
}

// positions returns a handler that replaces 100 cached positions.
func positions() func() error {
	cache := make([]atomic.Pointer[position], *cached)
	replace := func(i int) {
		position := newPosition(i)
		cache[i].Store(&position)
	}
	for i := range cache {
		replace(i)
	}
	return func() error {
		for range 100 {
			replace(rand.IntN(len(cache)))
		}
		return nil
	}
}

// route returns a handler that waits 20 ms for a route calculation, and limits their number.
func route() func() error {
	free := semaphore.NewWeighted(*jobs)
	return func() error {
		if err := free.Acquire(context.Background(), 1); err != nil {
			return err
		}
		defer free.Release(1)
		time.Sleep(20 * time.Millisecond)
		return nil
	}
}

// traffic returns a handler that asks the upstream for the traffic.
func traffic() func() error {
	client := &http.Client{Transport: &http.Transport{
		MaxConnsPerHost:     *conns,
		MaxIdleConnsPerHost: *idle,
	}}
	return func() error {
		response, err := client.Get(*upstream)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		if response.StatusCode != 200 {
			return fmt.Errorf("the upstream returned status %d", response.StatusCode)
		}
		return nil
	}
}

// connect connects to PostgreSQL and creates the table of vehicles.
func connect() (*sql.DB, error) {
	host, port, err := net.SplitHostPort(*store)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("host=%s port=%s user=bars dbname=bars sslmode=disable synchronous_commit=%s", host, port, *commit)
	database, err := sql.Open("postgres", address)
	if err != nil {
		return nil, err
	}
	database.SetMaxOpenConns(*pool)
	database.SetMaxIdleConns(*pool)
	statements := []string{
		fmt.Sprintf("CREATE TABLE vehicles AS SELECT id, 'AB-C ' || id AS plate, 0 AS fuel FROM generate_series(1, %d) AS id", vehicles),
		"ALTER TABLE vehicles ADD PRIMARY KEY (id)",
		"CREATE TABLE trips (id bigserial PRIMARY KEY, vehicle integer)",
	}
	if *index {
		statements = append(statements, "CREATE INDEX ON vehicles (plate)")
	}
	_, err = database.Exec(strings.Join(append(statements, "ANALYZE vehicles"), ";"))
	return database, err
}

// report returns a handler that runs a query that takes 20 ms.
func report() (func() error, error) {
	database, err := connect()
	return func() error {
		_, err := database.Exec("SELECT pg_sleep(0.02)")
		return err
	}, err
}

// reserve returns a handler that calls the upstream while a transaction is open.
func reserve() (func() error, error) {
	database, err := connect()
	call := traffic()
	return func() error {
		transaction, err := database.Begin()
		if err != nil {
			return err
		}
		defer transaction.Rollback()
		query := "SELECT fuel FROM vehicles WHERE id = $1"
		var fuel int
		if err := transaction.QueryRow(query, 1+rand.IntN(vehicles)).Scan(&fuel); err != nil {
			return err
		}
		if err := call(); err != nil {
			return err
		}
		return transaction.Commit()
	}, err
}

// find returns a handler that finds a vehicle by its number plate.
func find() (func() error, error) {
	database, err := connect()
	if err != nil {
		return nil, err
	}
	query, err := database.Prepare("SELECT id FROM vehicles WHERE plate = $1")
	return func() error {
		var id int
		return query.QueryRow(fmt.Sprint("AB-C ", 1+rand.IntN(vehicles))).Scan(&id)
	}, err
}

// refuel returns a handler that updates one of COUNT vehicles in a transaction that takes 10 ms.
func refuel(count int) (func() error, error) {
	database, err := connect()
	return func() error {
		transaction, err := database.Begin()
		if err != nil {
			return err
		}
		defer transaction.Rollback()
		update := "UPDATE vehicles SET fuel = fuel + 1 WHERE id = $1"
		if _, err := transaction.Exec(update, 1+rand.IntN(count)); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
		return transaction.Commit()
	}, err
}

// trip returns a handler that inserts a trip.
func trip() (func() error, error) {
	database, err := connect()
	if err != nil {
		return nil, err
	}
	insert, err := database.Prepare("INSERT INTO trips (vehicle) VALUES ($1)")
	return func() error {
		_, err := insert.Exec(1 + rand.IntN(vehicles))
		return err
	}, err
}
