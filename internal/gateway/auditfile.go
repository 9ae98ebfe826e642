// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"gopkg.in/natefinch/lumberjack.v2"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// logFile is an audit log at a path. Each write goes to the file that currently has the path. If
// the file was renamed or removed, the next write opens the path again. Regular files are rotated.
// It is safe for concurrent use.
type logFile struct {
	path string

	mu       sync.Mutex
	rotation rotation
	rotating *lumberjack.Logger // created once for each rotation, because each Logger has a goroutine that never ends
	file     io.WriteCloser     // nil if no file is in use
	opened   os.FileInfo        // the file that was opened
	lines    wholeLines         // writes to file
	retired  bool
}

// rotation specifies at which size a file is rotated, how many rotated files are retained, and for
// how many days. If megabytes is 0, the file is not rotated.
type rotation struct{ megabytes, backups, days int }

func newRotation(config *configv1alpha1.GatewayAudit) rotation {
	if config.LogPath == configv1alpha1.LogPathStdout {
		return rotation{}
	}
	return rotation{
		megabytes: *config.MaxSizeMegabytes,
		backups:   *config.MaxBackups,
		days:      *config.MaxAgeDays,
	}
}

// writeAndSearch is W_OK | X_OK of access(2).
const writeAndSearch = 2 | 1

// openAttempts is the maximum number of attempts to open a path. Another attempt is necessary if
// another process replaces the file in the meantime, or if opening the file rotates it.
const openAttempts = 3

var errLogReplaced = errors.New("the audit log was replaced while it was opened")

// openLogFile opens a log. If the path cannot be written, or the file must be rotated in a
// directory that cannot be written, it returns an error.
func openLogFile(config *configv1alpha1.GatewayAudit) (*logFile, error) {
	l := &logFile{path: config.LogPath}
	l.configure(newRotation(config))
	if err := l.reopenIfMoved(); err != nil {
		return nil, err
	}
	if _, rotates := l.file.(*lumberjack.Logger); !rotates {
		return l, nil
	}
	if err := syscall.Access(filepath.Dir(l.path), writeAndSearch); err != nil {
		l.close()
		return nil, fmt.Errorf("the directory of %s cannot be written, so the file cannot be rotated: change its "+
			"permissions, or set maxSizeMegabytes: 0: %w", l.path, err)
	}
	return l, nil
}

// Write implements [io.Writer]. Events of long requests may be written after the log was retired.
func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.reopenIfMoved(); err != nil {
		return 0, err
	}
	if l.retired {
		defer l.close()
	}
	return l.lines.Write(line)
}

// configure changes the rotation. If it differs from the current rotation, the next write opens
// the file again.
func (l *logFile) configure(r rotation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rotation == r {
		return
	}
	l.close()
	l.rotation = r
	l.rotating = nil
	if r.megabytes > 0 {
		l.rotating = &lumberjack.Logger{
			Filename:   l.path,
			MaxSize:    r.megabytes,
			MaxBackups: r.backups,
			MaxAge:     r.days,
		}
	}
}

// retire closes the log after another log has replaced it.
func (l *logFile) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	l.close()
}

// close closes the file. The caller MUST hold l.mu.
func (l *logFile) close() {
	if l.file != nil {
		_ = l.file.Close() // each line has already been written
	}
	l.file, l.opened = nil, nil
}

// reopenIfMoved opens the path again if the open file no longer has this path. The caller MUST hold
// l.mu.
func (l *logFile) reopenIfMoved() error {
	for range openAttempts {
		now, err := os.Stat(l.path)
		if err == nil && l.opened != nil && os.SameFile(now, l.opened) {
			return nil
		}
		l.close()
		if err := l.open(); err != nil {
			l.close()
			return err
		}
	}
	if now, err := os.Stat(l.path); err == nil && l.opened != nil && os.SameFile(now, l.opened) {
		return nil
	}
	l.close()
	return errLogReplaced
}

// open opens the file at the path, and creates it if it does not exist. The rotating writer opens
// the path by name. Therefore the caller MUST check afterwards which file has the path.
func (l *logFile) open() error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return err
	}
	torn := endsTorn(file)
	l.file, l.opened = file, info
	if l.rotating != nil && info.Mode().IsRegular() {
		_ = file.Close()
		l.file = l.rotating
		if _, err := l.rotating.Write(nil); err != nil { // opens the file, and rotates it if it is full
			return err
		}
	}
	l.lines = wholeLines{out: l.file, torn: torn}
	return nil
}

// endsTorn reports whether the last line of a file is incomplete, for example after a crash. It
// returns false if the file cannot be read.
func endsTorn(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	// O_NONBLOCK: the path may now be a named pipe, which would block.
	reader, err := os.OpenFile(file.Name(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = reader.Close() }()
	if current, err := reader.Stat(); err != nil || !os.SameFile(current, info) {
		return false
	}
	last := make([]byte, 1)
	_, err = reader.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}
