// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import "strings"

// maxMessage is the maximum size of a condition's message in bytes. The schemas in the
// CustomResourceDefinitions limit the number of characters to the same value (metav1.Condition).
const maxMessage = 32768

// ConditionMessage returns text for use as the message of a condition. It truncates a text of
// more than maxMessage bytes, because the server would reject the whole status.
func ConditionMessage(text string) string {
	const end = " ..."
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len(end)], "") + end
}
