package authntest

import (
	"bytes"
	"flag"
	"io"
	"strconv"
	"sync"

	"k8s.io/klog/v2"
)

// Log holds what was logged. The zero value is empty. It is safe for concurrent use.
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

// String returns what was logged so far.
func (l *Log) String() string {
	klog.Flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// CaptureLog sends the log of the whole process, as verbose as that, to the Log that it returns, until
// the caller calls end. One at a time.
func CaptureLog(verbosity int) (log *Log, end func(), err error) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{
		"v": strconv.Itoa(verbosity), "logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL",
	} {
		if err := flags.Set(name, value); err != nil {
			return nil, nil, err
		}
	}
	log = &Log{}
	klog.SetOutput(log)
	return log, func() {
		klog.SetOutput(io.Discard)
		_ = flags.Set("v", "0") // was accepted just now
	}, nil
}
