// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authntest

import (
	"bytes"
	"flag"
	"os"
	"strconv"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// Log collects log output. The zero value is empty. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the output so far.
func (l *Log) String() string {
	klog.Flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// verbosity is the only flag of klog that may be set while other goroutines log.
var verbosity = func() flag.Value {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	// klog reads these flags without its lock, so they are set before any goroutine can log.
	for name, value := range map[string]string{
		"logtostderr":     "false",
		"alsologtostderr": "false",
		"stderrthreshold": "FATAL",
	} {
		utilruntime.Must(flags.Set(name, value))
	}
	klog.SetOutput(os.Stderr)
	return flags.Lookup("v").Value
}()

// Verbose sets the verbosity of klog for the whole process, until the capture ends.
func (*Log) Verbose(level int) error { return verbosity.Set(strconv.Itoa(level)) }

// CaptureLog redirects the log of the whole process to the returned Log until the caller calls end.
// Only one capture at a time is allowed. Other goroutines may log during a capture.
func CaptureLog(verbose int) (log *Log, end func(), err error) {
	if err := verbosity.Set(strconv.Itoa(verbose)); err != nil {
		return nil, nil, err
	}
	log = &Log{}
	klog.SetOutput(log)
	return log, func() {
		klog.SetOutput(os.Stderr)
		_ = verbosity.Set("0") // Set has succeeded above
	}, nil
}
