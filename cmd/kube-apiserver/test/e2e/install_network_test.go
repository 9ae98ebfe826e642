// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The addresses in the network of an installation test. kube-apiserver listens at
// machineAddress, and the load balancer listens at balancerAddress. Pods have addresses in the
// same network.
const (
	machineAddress  = "172.30.0.1"
	balancerAddress = "172.30.0.2"
	networkBits     = "/16"
	bridge          = "kt0"
	// isolated is the environment variable that contains the name of the test that runs in its own
	// network and mount namespaces.
	isolated = "KUBETENANT_ISOLATED"
)

// runIsolated runs the test again in a process with its own network and mount namespaces. It
// reports whether the current process already has these namespaces. In these namespaces, the
// commands of a page can use the page's addresses and folders.
func runIsolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolated) == t.Name() {
		if err := prepareMachine(t); err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("the test needs root, to run images as a node does")
		}
		t.Skip("the test needs root, to run images as a node does")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=20m")
	cmd.Env = append(os.Environ(), isolated+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
	return false
}

// prepareMachine sets up the network, folders and hosts file in the namespaces of this process.
func prepareMachine(t *testing.T) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts")
	text := "127.0.0.1 localhost\n" + balancerAddress + " gateway.example.com\n"
	if err := os.WriteFile(hosts, []byte(text), 0o600); err != nil {
		return err
	}
	if err := syscall.Mount(hosts, "/etc/hosts", "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	for _, folder := range []string{"/usr/local/bin", "/etc/kubernetes"} {
		own := filepath.Join(dir, filepath.Base(folder))
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.Mkdir(own, 0o755)); err != nil { // #nosec G301 -- as it is
			return err
		}
		if err := syscall.Mount(own, folder, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return ip("link set lo up", "link add "+bridge+" type bridge", "addr add "+machineAddress+networkBits+" dev "+bridge,
		"addr add "+balancerAddress+"/32 dev "+bridge, "link set "+bridge+" up")
}

// ip runs commands of iproute2 in the network namespace of the calling thread.
func ip(commands ...string) error {
	for _, command := range commands {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
	}
	return nil
}

// startIn starts a process in its own network namespace, which is connected to the bridge. The
// thread that starts the process must not exit before the process, because the process has
// Pdeathsig.
func startIn(cmd *exec.Cmd, number int, address netip.Addr) (ended <-chan error, err error) {
	outside, inside := fmt.Sprintf("kt-o%d", number), fmt.Sprintf("kt-i%d", number)
	if err := ip("link add "+outside+" type veth peer name "+inside,
		"link set "+outside+" master "+bridge+" up"); err != nil {
		return nil, err
	}
	thread, moved, started, done := make(chan int), make(chan error), make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, because no other goroutine may run in this network namespace
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			close(thread)
			started <- err
			return
		}
		thread <- syscall.Gettid()
		err := <-moved
		if err == nil {
			err = ip("addr add "+address.String()+networkBits+" dev "+inside, "link set "+inside+" up", "link set lo up",
				"route add default via "+machineAddress)
		}
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	if id, ok := <-thread; ok {
		moved <- ip(fmt.Sprintf("link set %s netns %d", inside, id))
	}
	return done, <-started
}

// services forwards connections from the addresses of Services to pods, as kube-proxy does.
type services struct {
	node *node
	mu   sync.Mutex
	open map[string]net.Listener
	next int
}

// follow listens at the addresses of new Services, and writes the load balancer's address to their
// status.
func (s *services) follow(ctx context.Context) error {
	all, err := s.node.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range all.Items {
		service := &all.Items[i]
		addresses := []string{}
		if at := service.Spec.ClusterIP; at != "" && at != corev1.ClusterIPNone {
			addresses = append(addresses, at)
		}
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
			addresses = append(addresses, balancerAddress)
			if len(service.Status.LoadBalancer.Ingress) == 0 {
				service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: balancerAddress}}
				_, err := s.node.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
				errs = append(errs, err)
			}
		}
		for _, at := range addresses {
			for _, port := range service.Spec.Ports {
				errs = append(errs, s.listen(ctx, at, service, port))
			}
		}
	}
	return errors.Join(errs...)
}

func (s *services) listen(ctx context.Context, at string, service *corev1.Service, port corev1.ServicePort) error {
	address := net.JoinHostPort(at, fmt.Sprint(port.Port))
	if s.open[address] != nil {
		return nil
	}
	if at != balancerAddress {
		_ = ip("addr add " + at + "/32 dev lo") // fails if another port of the Service has already added the address
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	s.open[address] = listener
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go s.forward(connection, service, port)
		}
	}()
	return nil
}

// forward connects a client to a ready pod of the Service.
func (s *services) forward(from net.Conn, service *corev1.Service, port corev1.ServicePort) {
	defer func() { _ = from.Close() }()
	targets := []string{net.JoinHostPort(machineAddress, "6443")} // the target of the Service kubernetes
	if service.Name != "kubernetes" {
		targets = s.node.ready(service, port)
	}
	if len(targets) == 0 {
		return
	}
	s.mu.Lock()
	s.next++
	target := targets[s.next%len(targets)]
	s.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		wg.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // either side may close the connection
			_ = way[1].(*net.TCPConn).CloseWrite()
		})
	}
	wg.Wait()
}
