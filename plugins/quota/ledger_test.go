// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"testing"

	"github.com/kubetenant/kubetenant/tenant"
)

// unlimited is a store without quotas.
type unlimited struct{ Store }

func (unlimited) States(context.Context, tenant.ID) ([]*State, error) { return nil, nil }

// TestCanceledRequestsAreNotCharged checks that a batch does not charge a request that has ended,
// and that it charges all others.
func TestCanceledRequestsAreNotCharged(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	gone, waiting := &entry{request: &request{}, ctx: ended}, &entry{request: &request{}, ctx: t.Context()}
	newLedger(unlimited{}).chargeBatch(t.Context(), tenant.ID{}, []*entry{gone, waiting})
	if !errors.Is(gone.err, errStore) || !errors.Is(gone.err, context.Canceled) || waiting.err != nil {
		t.Errorf("%v and %v", gone.err, waiting.err)
	}
}
