// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command bench compares the compiled-in server with upstream's kube-apiserver of the same release.
// Both use the same embedded etcd, in alternating runs. It measures the latency of requests and the
// time from the start until the server is ready. It prints medians with their 95% confidence
// intervals.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	bin := flag.String("bin", "", "directory of the built commands")
	rounds := flag.Int("rounds", 12, "runs of each server")
	requests := flag.Int("requests", 1500, "requests of each kind in a run")
	lists := flag.Int("lists", 60, "lists over all namespaces of each server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *bin, *rounds, *requests, *lists)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// sample contains the measurements of one run in seconds, keyed by the name of the measurement.
type sample map[string]float64

func run(ctx context.Context, out io.Writer, bin string, rounds, requests, lists int) (err error) {
	if bin == "" {
		return errors.New("--bin is required")
	}
	dir, err := os.MkdirTemp("", "kubetenant-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	etcd, err := startEtcd(ctx, filepath.Join(bin, "kubetenant-local"), dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.stop()) }()

	servers := []server{
		{vanilla, filepath.Join(bin, "vanilla-kube-apiserver"), nil},
		{
			"kubetenant",
			filepath.Join(bin, "kube-apiserver"),
			[]string{"--tenancy-config=" + filepath.Join(dir, "tenancy.yaml")},
		},
	}
	samples := map[string][]sample{}
	for round := range rounds + min(1, rounds) {
		for i := range servers {
			s := servers[(i+round)%2] // the first server alternates
			got, err := s.measure(ctx, dir, etcd, requests)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 { // the first round warms up the disk and fills etcd
				samples[s.name] = append(samples[s.name], got)
			}
		}
		_, _ = fmt.Fprintf(os.Stderr, "round %d of %d\n", round, rounds)
	}
	if rounds > 0 {
		if err := report(out, samples, requests); err != nil {
			return err
		}
	}
	return runLists(ctx, out, dir, etcd, servers, lists)
}

// vanilla is the name of upstream's server.
const vanilla = "vanilla"

// measure starts the server, measures it, and stops it.
func (s server) measure(ctx context.Context, dir string, etcd *etcdProcess, requests int) (got sample, err error) {
	p, ready, err := s.start(ctx, dir, etcd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	got = sample{"start to ready": ready.Seconds()}
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	maps := client.CoreV1().ConfigMaps("default")
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}, metav1.CreateOptions{})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		return nil, err
	}
	for name, do := range map[string]func(int) error{
		"get a ConfigMap": func(int) error { _, err := maps.Get(ctx, "bench", metav1.GetOptions{}); return err },
		"list 4 Namespaces": func(int) error {
			_, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			return err
		},
		"update a ConfigMap": func(i int) error {
			_, err := maps.Update(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Data: map[string]string{"i": strconv.Itoa(i)}},
				metav1.UpdateOptions{})
			return err
		},
	} {
		n := requests
		if strings.HasPrefix(name, "update") {
			n /= 5 // each update waits for the disk
		}
		if got[name], err = medianOf(n, do); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// medianOf returns the median time of n calls in seconds, after n/5 calls that are not measured.
func medianOf(n int, do func(int) error) (float64, error) {
	times := make([]float64, 0, n)
	for i := range n + n/5 {
		start := time.Now()
		if err := do(i); err != nil {
			return 0, err
		}
		if i >= n/5 {
			times = append(times, time.Since(start).Seconds())
		}
	}
	slices.Sort(times)
	return times[n/2], nil
}

// report prints the median of each measurement for each server. It also prints the median ratio of
// adjacent runs, with its 95% confidence interval.
func report(out io.Writer, samples map[string][]sample, requests int) error {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	runs := len(samples[vanilla])
	_, _ = fmt.Fprintf(table, "%d runs of each server, %d requests of a kind\tVANILLA\tKUBETENANT\tRATIO\t95%% INTERVAL\n",
		runs, requests)
	for _, name := range []string{"get a ConfigMap", "list 4 Namespaces", "update a ConfigMap", "start to ready"} {
		var vanillaTimes, own, ratio []float64
		for i := range runs {
			vanillaTimes = append(vanillaTimes, samples[vanilla][i][name])
			own = append(own, samples["kubetenant"][i][name])
			ratio = append(ratio, own[i]/vanillaTimes[i])
		}
		low, high := interval(ratio)
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%.3f\t%.3f to %.3f\n",
			name, formatTime(median(vanillaTimes)), formatTime(median(own)), median(ratio), low, high)
	}
	return table.Flush()
}

func formatTime(seconds float64) string {
	if seconds < 0.1 {
		return fmt.Sprintf("%.0f us", seconds*1e6)
	}
	return fmt.Sprintf("%.2f s", seconds)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// interval returns the confidence interval of a median from order statistics. Its bounds are the
// values whose ranks differ from the middle rank by 1.96 standard deviations of the binomial
// distribution.
func interval(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := float64(len(sorted))
	half := 1.96 * math.Sqrt(n) / 2
	lower := max(0, int(math.Floor(n/2-half)))
	upper := min(len(sorted)-1, int(math.Ceil(n/2+half)))
	return sorted[lower], sorted[upper]
}
