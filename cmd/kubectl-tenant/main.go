// Command kubectl-tenant is the plugin behind "kubectl tenant".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit codes: 0 all is well, 1 something was found wrong, 2 it could not be looked at.
const (
	exitFailed  = 1
	exitUnusual = 2
)

// errFailed ends a command that has already said what it found.
var errFailed = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errFailed):
		os.Exit(exitFailed)
	default:
		fmt.Fprintln(os.Stderr, "kubectl tenant:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(exitUnusual)
	}
}
