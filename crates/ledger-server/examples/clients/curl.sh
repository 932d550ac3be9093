# Appends one record with curl: SOCKET is the writer socket, RECORD the JSON.
# --fail-with-body: an error status is a failed command, and the problem is still shown.
curl --silent --show-error --fail-with-body --max-time 30 \
    --unix-socket "$SOCKET" http://ledger/v1/records \
    --header 'content-type: application/json' --data-binary "$RECORD"
