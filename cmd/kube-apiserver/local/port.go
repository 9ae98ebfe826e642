package local

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
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

// reserved keeps the ports of FreeAddress from other processes like this one, whose listeners may come seconds later: each is held over UDP,
// which nobody speaks there, until this process ends.
var reserved struct {
	sync.Mutex
	ports []net.PacketConn
}

// listenFree listens on a port of the loopback address that is free, and reserved by nobody as long as the reservation that it returns is open.
func listenFree() (net.Listener, net.PacketConn, error) {
	for range portTries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort))) // #nosec G404 -- any will do
		held, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			return l, held, nil
		}
		_ = held.Close()
	}
	return nil, nil, errNoPort
}

// FreeAddress returns an address for a process that cannot be handed a listener. No other gets it as long as this process runs.
func FreeAddress() (string, error) {
	l, held, err := listenFree()
	if err != nil {
		return "", err
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.ports = append(reserved.ports, held)
	return l.Addr().String(), l.Close()
}
