// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command kubetenant-webhook adds tenants to an unmodified kube-apiserver through its webhooks.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubetenant-webhook:", err)
		os.Exit(1)
	}
}
