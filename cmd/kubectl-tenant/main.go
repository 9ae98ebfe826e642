// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-tenant is the plugin behind "kubectl tenant".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubetenant/kubetenant/internal/cli/kubeconfig"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/tenancy"
	"github.com/kubetenant/kubetenant/internal/cli/uninstall"
)

// Exit codes: 0 all is well, 1 something was found wrong or refused, 2 it could
// not be looked at or tried.
const (
	exitFailed  = 1
	exitUnusual = 2
	// exitInterrupted is that of shells.
	exitInterrupted = 130
)

var (
	// errFailed ends a command that has already said what it found.
	errFailed = errors.New("failed")
	// errSome says that some of several clusters failed.
	errSome = errors.New("run the command again when the failed clusters are available")
	// errUndone says that an interrupted command removed what it created.
	errUndone = errors.New("interrupted: everything that the run created was deleted")
)

// gcPercent lets the heap grow to five times what is live before it is collected: commands
// are short, hold little of what they read (docs/design/benchmarks.md), and share processors
// with what they wait for.
const gcPercent = 400

func main() {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process wherever it is
	err := newCommand().ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted && errors.Is(err, errUndone):
		fmt.Fprintln(os.Stderr, "kubectl tenant:", err)
		os.Exit(exitInterrupted)
	case interrupted:
		fmt.Fprintln(os.Stderr, "kubectl tenant: interrupted: completed changes remain")
		os.Exit(exitInterrupted)
	case errors.Is(err, errFailed):
		os.Exit(exitFailed)
	default:
		fmt.Fprintln(os.Stderr, "kubectl tenant:", printed(err))
		os.Exit(exitCode(err))
	}
}

// printed returns the text of an error for a terminal. cobra suggests commands on lines of their own,
// as kubectl does. Any other error is one line.
func printed(err error) string {
	message, suggestions, is := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !is {
		return oneLine(err)
	}
	text := output.Safe(message) + "\n\nDid you mean this?"
	for _, name := range strings.Fields(suggestions) {
		text += "\n\t" + output.Safe(name)
	}
	return text
}

// oneLine returns what an error says, on one line and harmless for a terminal.
func oneLine(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, output.Safe(line))
		}
	}
	return strings.Join(parts, "; ")
}

// exitCode returns 1 if the server or its rules refuse the command, a named object does
// not exist, or the command failed on some of several clusters. It returns 2 if the
// command could not be tried.
func exitCode(err error) int {
	for _, found := range []error{
		errSome, tenancy.ErrRefused, tenancy.ErrNotEmpty, tenancy.ErrNoTenant, tenancy.ErrMissing,
		tenancy.ErrHolds, kubeconfig.ErrDenied, uninstall.ErrRefused, uninstall.ErrFailed,
	} {
		if errors.Is(err, found) {
			return exitFailed
		}
	}
	if apierrors.IsForbidden(err) || isMissingObject(err) {
		return exitFailed
	}
	return exitUnusual
}

// isMissingObject reports whether an error says that one object does not exist, and not that
// the server lacks its kind.
func isMissingObject(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name != ""
}
