{-# LANGUAGE OverloadedStrings #-}

-- | An order service on Warp and PostgreSQL. See system.toml for the environment variables.
module Main (main) where

import Codec.Compression.GZip (compressLevel, compressWith, compressionLevel, defaultCompressParams)
import Control.Concurrent (threadDelay)
import Control.Concurrent.MVar (newMVar, withMVar)
import Control.Concurrent.QSem (newQSem, signalQSem, waitQSem)
import Control.Exception (bracket_, evaluate)
import Control.Monad (void)
import qualified Crypto.Hash.SHA256 as SHA256
import qualified Data.ByteString as B
import qualified Data.ByteString.Char8 as C
import qualified Data.ByteString.Lazy as L
import Data.IORef (atomicModifyIORef', newIORef)
import Data.Pool (Pool, createPool, withResource)
import Database.PostgreSQL.Simple
import Foreign.C.Types (CInt (..), CUInt (..))
import Network.HTTP.Client
    ( defaultManagerSettings, httpLbs, managerConnCount, newManager, parseRequest, requestHeaders )
import Network.HTTP.Types (status200)
import Network.Wai (responseLBS)
import Network.Wai.Handler.Warp (defaultSettings, runSettings, setHost, setPort)
import System.Environment (getEnv)

-- An unsafe call occupies a capability, which runs no other Haskell thread meanwhile.
foreign import ccall unsafe "unistd.h usleep" unsafeSleep :: CUInt -> IO CInt

main :: IO ()
main = do
    port <- read <$> getEnv "PORT"
    work <- getEnv "HANDLER" >>= handler
    let settings = setHost "127.0.0.1" (setPort port defaultSettings)
        app _ respond = work >> respond (responseLBS status200 headers "Hello World")
        headers = [("Content-Type", "text/plain"), ("Content-Length", "11")]
    runSettings settings app

-- | Returns the work of one request.
handler :: String -> IO (IO ())
handler "hello" = pure (pure ())
handler "sleep" = pure (threadDelay 10000)
handler "unsafe-sleep" = pure (void (unsafeSleep 10000))
handler "mvar" = do
    turn <- newMVar ()
    pure (withMVar turn (\_ -> threadDelay 10000))
handler "hash" = counted (\n -> void (evaluate (iterate SHA256.hash (C.pack (show n)) !! 2000)))
handler "export" = do
    level <- read <$> getEnv "LEVEL"
    let params = defaultCompressParams{compressLevel = compressionLevel level}
        row n = C.pack (show n <> "," <> show (n * 7919 `mod` 10007) <> ",paid\n")
        report = B.concat (map row [1 .. 5000 :: Int])
        export n = compressWith params (L.fromStrict (B.append report (row n)))
    counted (void . evaluate . L.length . export)
handler "price" = do
    port <- getEnv "UPSTREAM"
    connection <- getEnv "CONNECTION"
    free <- read <$> getEnv "SLOTS" >>= newQSem
    manager <- newManager defaultManagerSettings{managerConnCount = 256}
    base <- parseRequest ("http://127.0.0.1:" <> port <> "/price")
    let request = base{requestHeaders = [("Connection", C.pack connection)]}
    pure (bracket_ (waitQSem free) (signalQSem free) (void (httpLbs request manager)))
handler "report" = do
    pool <- store
    pure (withResource pool (\c -> void (query_ c "SELECT 1 FROM pg_sleep(0.02)" :: IO [Only Int])))
handler other = fail ("unknown handler " <> other)

-- | Passes the number of the request to the work, so that Haskell cannot reuse an earlier result.
counted :: (Int -> IO ()) -> IO (IO ())
counted work = do
    next <- newIORef 0
    pure (atomicModifyIORef' next (\n -> (n + 1, n)) >>= work)

-- | Returns a pool of connections to the database.
store :: IO (Pool Connection)
store = do
    (host, port) <- break (== ':') <$> getEnv "STORE"
    size <- read <$> getEnv "POOL"
    let info = defaultConnectInfo
            { connectHost = host
            , connectPort = read (drop 1 port)
            , connectUser = "bars"
            , connectDatabase = "bars"
            }
    createPool (connect info) close 1 60 size
