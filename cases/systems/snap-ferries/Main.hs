{-# LANGUAGE OverloadedStrings #-}

-- | A ferry line's service on Snap and PostgreSQL. See system.toml for the environment variables.
module Main (main) where

import Codec.Compression.GZip (compressLevel, compressWith, compressionLevel, defaultCompressParams)
import Control.Concurrent (threadDelay)
import Control.Concurrent.MVar (newMVar, withMVar)
import Control.Concurrent.QSem (newQSem, signalQSem, waitQSem)
import Control.Exception (bracket_, evaluate)
import Control.Monad (forM_, void)
import Control.Monad.IO.Class (liftIO)
import qualified Crypto.Hash.SHA256 as SHA256
import qualified Data.ByteString as B
import qualified Data.ByteString.Char8 as C
import qualified Data.ByteString.Lazy as L
import qualified Data.IntMap.Strict as IntMap
import Data.IORef (atomicModifyIORef', newIORef)
import Data.Pool (Pool, createPool, withResource)
import Database.PostgreSQL.Simple
import Network.HTTP.Client
    (defaultManagerSettings, httpLbs, managerConnCount, newManager, parseRequest)
import Snap.Core (Snap, modifyResponse, setContentLength, setContentType, writeBS)
import Snap.Http.Server
import System.Environment (getEnv)
import System.IO (stderr)
import System.Posix.Files (stdFileMode)
import System.Posix.IO (OpenMode (WriteOnly), defaultFileFlags, fdWrite, openFd)
import System.Posix.Types (Fd)
import System.Posix.Unistd (fileSynchroniseDataOnly)

main :: IO ()
main = do
    port <- setting "PORT"
    isLogged <- getEnv "LOG"
    work <- getEnv "HANDLER" >>= handler
    let accessLog = if isLogged == "on" then ConfigIoLog (C.hPutStrLn stderr) else ConfigNoLog
        config = setBind "127.0.0.1" (setPort port (setAccessLog accessLog (setErrorLog ConfigNoLog
            (setVerbose False defaultConfig)))) :: Config Snap ()
    simpleHttpServe config $ do
        liftIO work
        modifyResponse (setContentType "text/plain" . setContentLength 11)
        writeBS "Hello World"

setting :: Read a => String -> IO a
setting name = read <$> getEnv name

-- | Returns the work of one request.
handler :: String -> IO (IO ())
handler "hello" = pure (pure ())
handler "lock" = pure (threadDelay 10000)
handler "lock-mvar" = do
    chamber <- newMVar ()
    pure (withMVar chamber (\_ -> threadDelay 10000))
handler "berth" = do
    free <- setting "BERTHS" >>= newQSem
    pure (bracket_ (waitQSem free) (signalQSem free) (threadDelay 20000))
handler "ticket" = counted (\n -> void (evaluate (iterate SHA256.hash (C.pack (show n)) !! 2000)))
handler "timetable" = do
    level <- setting "LEVEL"
    let params = defaultCompressParams{compressLevel = compressionLevel level}
        row n = C.pack ("ferry " <> show n <> "," <> show (n * 7919 `mod` 1440) <> "\n")
        table = B.concat (map row [1 .. 3000 :: Int])
        compress n = compressWith params (L.fromStrict (B.append table (row n)))
    counted (void . evaluate . L.length . compress)
-- Replaces 100 of 200,000 passengers in memory.
handler "board" = do
    let passenger n = show n
        insert n passengers = IntMap.insert (n * 7919 `mod` 200000) (passenger n) passengers
    aboard <- newIORef (foldr insert IntMap.empty [1 .. 200000 :: Int])
    let replace n = atomicModifyIORef' aboard (\old -> (insert n old, ()))
    counted (\n -> forM_ [1 .. 100] (\i -> replace (100 * n + i)))
-- Appends a line to the logbook while it holds an MVar.
handler "logbook" = logbook (const (pure ()))
handler "durable-logbook" = logbook fileSynchroniseDataOnly
handler "weather" = do
    url <- getEnv "UPSTREAM"
    idle <- setting "IDLE"
    manager <- newManager defaultManagerSettings{managerConnCount = idle}
    request <- parseRequest url
    pure (void (httpLbs request manager))
handler "report" = do
    pool <- store
    pure (withResource pool (\c -> void (query_ c "SELECT 1 FROM pg_sleep(0.02)" :: IO [Only Int])))
handler "book" = book rows
handler "book-one" = book 1
handler "sell" = do
    pool <- store
    let insert n c = execute c "INSERT INTO tickets (ferry) VALUES (?)" (Only (n `mod` rows))
    counted (\n -> withResource pool (void . insert n))
handler other = fail ("unknown handler " <> other)

-- | Returns work that appends a line to the logbook, and then calls FLUSH, while it holds an MVar.
logbook :: (Fd -> IO ()) -> IO (IO ())
logbook flush = do
    run <- getEnv "RUN"
    file <- openFd (run <> "/logbook") WriteOnly (Just stdFileMode) defaultFileFlags
    free <- newMVar ()
    pure (withMVar free (\_ -> fdWrite file "the ferry arrived\n" >> flush file))

-- | Returns work that updates one of COUNT rows in a transaction that takes 10 ms.
book :: Int -> IO (IO ())
book count = do
    pool <- store
    counted $ \n -> withResource pool $ \c -> withTransaction c $ do
        let ferry = 1 + n * 7919 `mod` count
        void (execute c "UPDATE ferries SET booked = booked + 1 WHERE id = ?" (Only ferry))
        threadDelay 10000

-- | Passes the number of the request to the work, so that Haskell cannot reuse an earlier result.
counted :: (Int -> IO ()) -> IO (IO ())
counted work = do
    next <- newIORef 0
    pure (atomicModifyIORef' next (\n -> (n + 1, n)) >>= work)

rows :: Int
rows = 10000

-- | Creates the tables, and returns a pool of connections to the database.
store :: IO (Pool Connection)
store = do
    (host, port) <- break (== ':') <$> getEnv "STORE"
    synchronousCommit <- getEnv "SYNCHRONOUS_COMMIT"
    size <- setting "POOL"
    let info = defaultConnectInfo
            { connectHost = host
            , connectPort = read (drop 1 port)
            , connectUser = "bars"
            , connectDatabase = "bars"
            }
        open = do
            c <- connect info
            void (execute c "SET synchronous_commit TO ?" (Only synchronousCommit))
            pure c
    pool <- createPool open close 1 60 size
    withResource pool $ \c -> do
        let ferries = "CREATE TABLE ferries AS SELECT id, 0 AS booked FROM generate_series(1, ?) AS id"
        void (execute c ferries (Only rows))
        void (execute_ c "ALTER TABLE ferries ADD PRIMARY KEY (id)")
        void (execute_ c "CREATE TABLE tickets (id bigserial PRIMARY KEY, ferry integer)")
    pure pool
