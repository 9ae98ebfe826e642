// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/test/waittest"
)

const (
	definitionsFolder = "../../../../deploy/chart/crds"
	controller        = "kubetenant-controller"
)

// stopLocal ends the named process that kubetenant-local started, and returns its command-line
// arguments.
func (p *controlPlane) stopLocal(t *testing.T, name string) (args []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Dir, name+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	commandLine, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waittest.Within(t, waitLimit, func() error {
		if _, err := os.Stat(proc); err == nil {
			return errors.New(name + " has not ended")
		}
		return nil
	})
	return strings.Split(strings.Trim(string(commandLine), "\x00"), "\x00")[1:]
}

// flagOf returns the value of a flag.
func flagOf(t *testing.T, args []string, name string) string {
	t.Helper()
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("no flag --%s in %q", name, args)
	return ""
}

// service is a process that the test replaces with one of another release.
type service struct {
	name, binary string
	args         []string
	running      *process // nil while kubetenant-local runs it
}

// replace ends the process, and starts the binary in the folder bin. Except for the controller, it
// waits until the process is ready.
func (s *service) replace(t *testing.T, p *controlPlane, bin string) {
	t.Helper()
	if s.running == nil {
		s.args = p.stopLocal(t, s.name)
	} else {
		s.running.stop(t)
	}
	s.start(t, p, bin)
}

func (s *service) start(t *testing.T, p *controlPlane, bin string) {
	t.Helper()
	s.running = run(t, filepath.Join(p.Dir, s.name+".log"), filepath.Join(bin, s.binary), s.args...)
	if s.name != controller { // the balancer of kubetenant-local detects a ready replica within 2 s
		s.running.awaitReady(t, "http://"+flagOf(t, s.args, "metrics-listen"))
	}
	time.Sleep(settle)
}

// services returns the two replicas of the webhook service and its controller.
func services() []*service {
	return []*service{
		{name: "kubetenant-webhook-1", binary: "kubetenant-webhook"},
		{name: "kubetenant-webhook-2", binary: "kubetenant-webhook"},
		{name: controller, binary: "kubetenant-webhook"},
	}
}

// install applies the definitions of this release, as docs/tasks/upgrade.md does.
func (p *controlPlane) install(t *testing.T, address string) {
	t.Helper()
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", definitionsFolder, "--force-conflicts"},
		{"wait", "--for=condition=Established", "-f", definitionsFolder},
	} {
		if out, err := p.kubectl(t, address, args...); err != nil {
			t.Fatal(out)
		}
	}
}

// TestUpgradeWebhook upgrades the replicas of the webhook service and its controller, rolls them
// back, and upgrades them again. It checks requests and stored objects as [TestUpgradeCompiledIn]
// does.
func TestUpgradeWebhook(t *testing.T) {
	earlier, current := releases(t)
	p := startControlPlane(t, earlier, "webhook.yaml", "--webhook", "--replicas=2")
	address := strings.TrimPrefix(p.URL, "https://")
	c, requests := admin(t, p.Server, address), tenantRequests()
	p.prepare(t, address, requests)
	stored := snapshot(t, dynamicClient(t, c))
	traffic := startTraffic(t, c, requests, retryWithin)
	time.Sleep(settle)
	traffic.check(t, "before")
	all := services()
	for _, step := range []struct{ phase, bin string }{
		{"upgrade", current}, {"rollback", earlier}, {"upgrade again", current},
	} {
		if step.bin == current {
			p.install(t, address)
		}
		for _, s := range all {
			s.replace(t, p, step.bin)
		}
		traffic.check(t, step.phase)
		compare(t, step.phase, stored, snapshot(t, dynamicClient(t, c)))
	}
}

// TestUpgradeGateway upgrades the webhook service and then two replicas of the gateway. It rolls
// them back in the reverse order, and upgrades them again. It checks requests and stored objects as
// [TestUpgradeCompiledIn] does.
func TestUpgradeGateway(t *testing.T) {
	earlier, current := releases(t)
	p := startControlPlane(t, earlier, "gateway.yaml", "--gateway", "--replicas=2")
	gateways := []*service{
		{name: "kubetenant-gateway", binary: "kubetenant-gateway"},
		{name: "kubetenant-gateway-2", binary: "kubetenant-gateway"},
	}
	gateways[0].args = p.stopLocal(t, gateways[0].name)
	var backends []*backend
	for _, g := range gateways {
		g.args = slices.Clone(gateways[0].args)
		for i, arg := range g.args {
			for _, name := range []string{"--listen=", "--metrics-listen="} {
				if strings.HasPrefix(arg, name) {
					g.args[i] = name + freeAddress(t)
				}
			}
		}
		g.start(t, p, earlier)
		backends = append(backends, &backend{
			address: flagOf(t, g.args, "listen"),
			health:  "http://" + flagOf(t, g.args, "metrics-listen"),
		})
	}
	address := newBalancer(t, backends...)
	direct := strings.TrimPrefix(p.URL, "https://")
	c, requests := admin(t, p.Server, address), tenantRequests()
	p.prepare(t, direct, nil)
	pinDenials(t, c, requests)
	directClient := dynamicClient(t, admin(t, p.Server, direct))
	stored := snapshot(t, directClient)
	traffic := startTraffic(t, c, requests, retryWithin)
	time.Sleep(settle)
	traffic.check(t, "before")
	all := slices.Concat(services(), gateways)
	for _, step := range []struct{ phase, bin string }{
		{"upgrade", current}, {"rollback", earlier}, {"upgrade again", current},
	} {
		order := slices.Clone(all)
		if step.bin == current {
			p.install(t, direct)
		} else {
			slices.Reverse(order)
		}
		for _, s := range order {
			s.replace(t, p, step.bin)
		}
		traffic.check(t, step.phase)
		compare(t, step.phase, stored, snapshot(t, directClient))
	}
}
