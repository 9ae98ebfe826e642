package local

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that are tried: below those that systems give to outgoing connections (Linux from 32768, others
// from 49152), so that nobody takes one between two listeners.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 200
)

// errNoPort says that no port was free.
var errNoPort = errors.New("no free port on the loopback address")

// listenFree listens on a free port of the loopback address.
func listenFree() (net.Listener, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort) // #nosec G404 -- any will do
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, errNoPort
}

// FreeAddress returns an address for a process that cannot be handed a listener.
func FreeAddress() (string, error) {
	l, err := listenFree()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
